"""Glob and Grep."""

import asyncio
import os
import threading
import time
from pathlib import Path

import pytest

from nova_workers.base.confined import Confinement
from nova_workers.engines.native import search
from tests.support.waiting import until
from tests.unit.engines.native.conftest import NativeToolCaller


@pytest.fixture
def tree(caller: NativeToolCaller) -> Path:
    """A small tree of files."""
    work = caller.workdir
    for at, name in enumerate(("a.py", "sub/b.py", "sub/ü.txt", ".git/config", "node_modules/x.py")):
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"first line\nneedle {at}\n")
        os.utime(path, (at, at))
    (work / "binary").write_bytes(b"needle\x00")
    (work / "long").write_bytes(b"needle" + b"x" * 3_000)
    return work


async def test_files_are_listed_newest_first(caller: NativeToolCaller, tree: Path) -> None:
    assert (await caller.call("Glob", pattern="sub/*")).splitlines() == [
        str(tree / "sub/ü.txt"),
        str(tree / "sub/b.py"),
    ]
    assert await caller.call("Glob", pattern="*.py", path="sub") == str(tree / "sub/b.py")
    assert await caller.call("Glob", pattern="*.rs") == "no matches"


async def test_lines_are_found_with_their_position(caller: NativeToolCaller, tree: Path) -> None:
    found = (await caller.call("Grep", pattern=r"needle \d")).splitlines()
    assert found == [f"{tree}/a.py:2:needle 0", f"{tree}/sub/b.py:2:needle 1", f"{tree}/sub/ü.txt:2:needle 2"]
    assert await caller.call("Grep", pattern="first", path="a.py") == f"{tree}/a.py:1:first line"


@pytest.mark.usefixtures("tree")
async def test_invalid_searches_are_reported_to_the_model(caller: NativeToolCaller) -> None:
    assert "unterminated" in await caller.failure("Grep", pattern="(")
    assert "no such file" in await caller.failure("Grep", pattern="x", path="nowhere")
    assert "outside" in await caller.failure("Grep", pattern="x", path="/etc")


async def test_output_is_cut(caller: NativeToolCaller) -> None:
    (caller.workdir / "many").write_text("a line that matches\n" * 20_000)
    found = await caller.call("Grep", pattern="line")
    assert len(found) < 101_000
    assert found.endswith("[there is more; narrow the search]")


async def test_a_hostile_expression_is_ended_in_time_and_blocks_no_other_call(
    caller: NativeToolCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_TIMEOUT_S", 0.5)
    (caller.workdir / "bait").write_text("a" * 40 + "!\n")
    searching = asyncio.create_task(caller.failure("Grep", pattern="(a+)+$"))
    longest_s, last_s = 0.0, time.thread_time()
    while not searching.done():
        await asyncio.sleep(0.005)
        longest_s, last_s = max(longest_s, time.thread_time() - last_s), time.thread_time()
    assert "longer than" in await searching
    assert longest_s < 0.4


async def test_a_search_that_is_canceled_while_it_begins_leaves_no_descriptor(
    caller: NativeToolCaller, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening, go_on, opened = threading.Event(), threading.Event(), list[int]()
    open_place = Confinement.open_place

    def slowly(self: Confinement, target: Path) -> int:
        opening.set()
        go_on.wait(60)
        opened.append(open_place(self, target))
        return opened[0]

    monkeypatch.setattr(Confinement, "open_place", slowly)
    searching = asyncio.create_task(caller.call("Glob", pattern="*", path=str(tree)))
    assert await asyncio.to_thread(opening.wait, 60)
    searching.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await searching
    # The thread closes it, perhaps a moment later. Its number may be reused by then.
    await until(lambda: not _is_open_on(tree, opened[0]))


def _is_open_on(folder: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), folder.stat())
    except OSError:
        return False
