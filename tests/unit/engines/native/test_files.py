"""Tools on files, and their confinement."""

import asyncio
import base64
import contextlib
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nova_workers.base.confined import Confinement, PrivateFiles
from nova_workers.base.errors import ToolFailure
from nova_workers.contracts.agents import Enclosure
from nova_workers.contracts.content import text_of
from nova_workers.contracts.engine import EngineOptions
from nova_workers.engines.native import NativeTools
from tests.requirements import proves
from tests.support.data.media_samples import GIF, JPEG, WEBP
from tests.unit.engines.native.conftest import NativeToolCaller

SECRET = "the secret outside"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory that no tool may reach, with a secret in it."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text(SECRET)
    return outside


async def test_a_file_is_written_read_and_edited(caller: NativeToolCaller) -> None:
    await caller.call("Write", file_path="a/ü.txt", content="one\ntwo\nthree\n")
    assert await caller.call("Read", file_path="a/ü.txt") == "one\ntwo\nthree\n"
    assert await caller.call("Read", file_path=str(caller.workdir / "a/ü.txt"), view_range=[2, 2]) == "two\n"
    await caller.call("Edit", file_path="a/ü.txt", old_string="two", new_string="2")
    assert (caller.workdir / "a/ü.txt").read_text() == "one\n2\nthree\n"


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("Read", {"file_path": "nothing.txt"}, "no such file"),
        ("Read", {"file_path": "."}, "regular file"),
        ("Read", {"file_path": "big.txt"}, "exceeds"),
        ("Read", {"file_path": "binary.dat"}, "no text in UTF-8"),
        ("Read", {"file_path": "pipe"}, "not a regular file"),
        ("Write", {"file_path": "pipe", "content": "x"}, "not a regular file"),
        ("Write", {"file_path": "x", "content": "x" * 5_300_000}, "over"),
        ("Write", {"file_path": "a/" * 1_000 + "x", "content": "x"}, "more than 256 directories"),
        ("Write", {"file_path": "x", "content": "\ud800"}, ""),
        ("Edit", {"file_path": "twice.txt", "old_string": "a", "new_string": "b"}, "2 times"),
        ("Edit", {"file_path": "twice.txt", "old_string": "z", "new_string": "b"}, "not found"),
        ("Edit", {"file_path": "big.txt", "old_string": "z", "new_string": "b"}, "exceeds"),
    ],
)
async def test_failures_are_reported_to_the_model(
    caller: NativeToolCaller, name: str, given: dict[str, str], says: str
) -> None:
    (caller.workdir / "big.txt").write_text("x" * 300_000)
    (caller.workdir / "binary.dat").write_bytes(b"\xff\xfe\x00")
    (caller.workdir / "twice.txt").write_text("a a")
    os.mkfifo(caller.workdir / "pipe")
    message = await asyncio.wait_for(caller.failure(name, **given), 60)
    assert message.startswith(f"{name}: ")
    assert says in message


async def test_an_empty_file_has_a_non_empty_result(caller: NativeToolCaller) -> None:
    (caller.workdir / "empty").touch()
    assert (await caller.call("Read", file_path="empty")).strip()


PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


async def test_valid_images_and_pdfs_are_shown(caller: NativeToolCaller) -> None:
    (caller.workdir / "a.png").write_bytes(PNG)
    (caller.workdir / "a.pdf").write_bytes(b"%PDF-1.7 and so on\n%%EOF\n")
    (caller.workdir / "lie.png").write_bytes(b"<html>")
    (caller.workdir / "empty.pdf").touch()
    (image,) = (await caller.outcome("Read", file_path="a.png")).content
    (document,) = (await caller.outcome("Read", file_path="a.pdf")).content
    assert (image["type"], base64.b64decode(image["source"]["data"])) == ("image", PNG)
    assert document["type"] == "document"
    # A provider refuses every later request of a conversation with such a block in it.
    for lie in ("lie.png", "empty.pdf"):
        assert "its content is something else" in await caller.failure("Read", file_path=lie)


@pytest.mark.parametrize(
    ("name", "whole"),
    [
        ("a.png", PNG),
        ("a.png", PNG + b"padding"),
        ("a.jpg", JPEG),
        ("a.gif", GIF),
        ("a.webp", WEBP),
        ("a.pdf", b"%PDF-1.7 and so on %%EOF\n"),
    ],
    ids=["png", "padded png", "jpeg", "gif", "webp", "pdf"],
)
async def test_a_truncated_image_or_pdf_is_not_shown(caller: NativeToolCaller, name: str, whole: bytes) -> None:
    path = caller.workdir / name
    path.write_bytes(whole)
    assert (await caller.outcome("Read", file_path=name)).content[0]["type"] in ("image", "document")
    path.write_bytes(whole[: len(PNG) - 5 if whole.startswith(PNG) else -4])
    assert "broken or incomplete" in await caller.failure("Read", file_path=name)


async def test_an_image_with_much_trailing_data_is_valid(caller: NativeToolCaller) -> None:
    (caller.workdir / "a.jpg").write_bytes(JPEG + b"notes " * 1_000)
    assert (await caller.outcome("Read", file_path="a.jpg")).content[0]["type"] == "image"


async def test_a_sound_file_is_no_image(caller: NativeToolCaller) -> None:
    (caller.workdir / "a.webp").write_bytes(WEBP.replace(b"WEBP", b"WAVE"))
    assert "something else" in await caller.failure("Read", file_path="a.webp")


@proves("security.files")
async def test_only_the_directories_are_reachable(caller: NativeToolCaller, outside: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "x.txt").write_text("mine too")
    caller = caller.with_tools(caller.toolset("controlled", other))
    assert await caller.call("Read", file_path=str(other / "x.txt")) == "mine too"
    assert "outside" in await caller.failure("Read", file_path=str(outside / "secret.txt"))
    assert "outside" in await caller.failure("Read", file_path=str(tmp_path / "other2"))


@pytest.mark.parametrize("name", ["Read", "Write", "Edit", "Glob", "Grep"])
@proves("security.files")
async def test_no_link_leaves_the_directories(caller: NativeToolCaller, outside: Path, name: str) -> None:
    work = caller.workdir
    (work / "in").mkdir()
    (work / "file").symlink_to(outside / "secret.txt")
    (work / "directory").symlink_to(outside)
    (work / "in" / "up").symlink_to("../..")
    (work / "dangling").symlink_to(outside / "new.txt")
    (work / "chain").symlink_to("directory")
    (work / "loop").symlink_to("loop")
    paths = ("file", "directory/secret.txt", "in/up/outside/secret.txt", "chain/secret.txt", "dangling", "loop")
    for path in paths:
        given = {"content": "x", "old_string": "secret", "new_string": "x", "pattern": "*" if name == "Glob" else "."}
        message = await caller.failure(name, file_path=path, path=path, **given)
        assert SECRET not in message
    _assert_untouched(outside)


@proves("security.files")
async def test_a_search_shows_nothing_behind_a_link(caller: NativeToolCaller, outside: Path) -> None:
    (caller.workdir / "link").symlink_to(outside)
    (caller.workdir / "file.txt").symlink_to(outside / "secret.txt")
    assert await caller.call("Grep", pattern="secret") == "no matches"
    for pattern in ("**/*.txt", "link/*", "*/secret.txt", "*.txt", "*"):
        assert "secret" not in await caller.call("Glob", pattern=pattern)
    for pattern in ("../**", "/etc/*", "a/../../*", "link/../../outside/*"):
        assert "relative" in await caller.failure("Glob", pattern=pattern)


PARTS = st.sampled_from(
    [
        *(".. . a b link up loop file ~ ~root etc passwd outside secret.txt proc self cwd root dev fd C: *".split()),
        *("", "$HOME", "%2e%2e", "..%2f", "\uff0e\uff0e", "\u2025", "\u202e", "a\x00b", "\\..\\", "\ud800", "\n"),
        "x" * 300,
    ]
)
PATHS = st.tuples(st.sampled_from(["", "/", "//", "./"]), st.lists(PARTS).map("/".join)).map("".join)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=PATHS | st.text(max_size=50) | st.just("a/" * 5_000))
@proves("security.files")
def test_no_path_leaves_the_directories(tmp_path: Path, caller: NativeToolCaller, path: str) -> None:
    outside = tmp_path / "outside"
    if not outside.exists():
        outside.mkdir()
        (outside / "secret.txt").write_text(SECRET)
        (caller.workdir / "a").mkdir()
        (caller.workdir / "link").symlink_to(outside)
        (caller.workdir / "a" / "up").symlink_to("../..")
        (caller.workdir / "loop").symlink_to("loop")
        (caller.workdir / "file").symlink_to("../outside/secret.txt")

    async def attack() -> None:
        for name, given_ in (
            ("Read", {"file_path": path}),
            ("Write", {"file_path": path, "content": "written"}),
            ("Edit", {"file_path": path, "old_string": "s", "new_string": "x", "replace_all": True}),
        ):
            try:
                outcome = await caller.outcome(name, **given_)
                said = text_of(outcome.content)
            except ToolFailure as failure:
                said = failure.message
            assert SECRET not in said

    asyncio.run(attack())
    _assert_untouched(outside)
    assert {entry.name for entry in tmp_path.iterdir()} == {"outside", "work"}


def _assert_untouched(outside: Path) -> None:
    assert [entry.name for entry in outside.iterdir()] == ["secret.txt"]
    assert (outside / "secret.txt").read_text() == SECRET


async def test_concurrent_edits_of_one_file_are_all_kept(caller: NativeToolCaller) -> None:
    (caller.workdir / "f").write_text("".join(f"<{at}>" for at in range(20)))
    await asyncio.gather(
        *(caller.call("Edit", file_path="f", old_string=f"<{at}>", new_string=f"[{at}]") for at in range(20))
    )
    assert (caller.workdir / "f").read_text() == "".join(f"[{at}]" for at in range(20))


async def test_a_canceled_call_waits_for_a_write_in_progress(
    caller: NativeToolCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    true_replace = Confinement.replace_file

    def slow(self: Confinement, target: Path, content: Any, *, make: bool = False) -> None:
        loop.call_soon_threadsafe(begun.set)
        assert go_on.wait(60)
        true_replace(self, target, content, make=make)

    monkeypatch.setattr(Confinement, "replace_file", slow)
    call = asyncio.create_task(caller.call("Write", file_path="f", content="whole"))
    await begun.wait()
    call.cancel()
    loop.call_later(0.05, go_on.set)
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (caller.workdir / "f").read_text() == "whole"


@pytest.mark.parametrize("exchanged", ["d", "d/inner", "d/inner/secret.txt"])
@proves("security.files")
def test_a_link_that_appears_after_the_check_is_not_followed(
    caller: NativeToolCaller, outside: Path, exchanged: str
) -> None:
    (outside / "inner").mkdir()
    (outside / "inner" / "secret.txt").write_text(SECRET)
    place = caller.workdir / exchanged
    target = caller.workdir / "d" / "inner" / "secret.txt"
    target.parent.mkdir(parents=True)
    target.write_text("inside")
    confinement = Confinement((str(caller.workdir),))
    checked = confinement.resolve("d/inner/secret.txt")
    place.rename(caller.workdir / "away")
    place.symlink_to({"d": outside, "d/inner": outside / "inner"}.get(exchanged, outside / "secret.txt"))
    for flags, make in ((os.O_RDONLY, False), (os.O_WRONLY, True), (os.O_RDWR, False)):
        with pytest.raises(OSError, match=r"symbolic|directory"):
            confinement.open_file(checked, flags, make=make)
    with pytest.raises(OSError, match=r"symbolic|directory"):
        confinement.open_place(checked)


FLIPPER = """
import os, sys, contextlib
work, outside = sys.argv[1:]
os.chdir(work)
while True:
    with contextlib.suppress(OSError):
        os.rename("d", "real"); os.symlink(outside, "d")
        os.unlink("d"); os.rename("real", "d")
    with contextlib.suppress(OSError):
        os.rename("f", "g"); os.symlink(outside + "/secret.txt", "f")
        os.unlink("f"); os.rename("g", "f")
"""


@proves("security.files")
async def test_a_file_that_is_exchanged_for_a_link_during_its_use_is_not_followed(
    caller: NativeToolCaller, outside: Path
) -> None:
    work = caller.workdir
    (work / "d").mkdir()
    for path in ("d/secret.txt", "f"):
        (work / path).write_text("inside")
    flipper = await asyncio.create_subprocess_exec(sys.executable, "-c", FLIPPER, str(work), str(outside))
    seen: set[str] = set()
    try:
        async with asyncio.timeout(60):
            for at in range(600):
                for name, given_ in (
                    ("Read", {"file_path": "d/secret.txt"}),
                    ("Read", {"file_path": "f"}),
                    ("Edit", {"file_path": "d/secret.txt", "old_string": "secret", "new_string": "changed"}),
                    ("Write", {"file_path": f"d/{at}.txt", "content": "new"}),
                ):
                    with contextlib.suppress(ToolFailure):
                        seen.add(await caller.call(name, **given_))
    finally:
        flipper.kill()
        await flipper.wait()
    assert "inside" in seen
    assert not any(SECRET in text for text in seen)
    _assert_untouched(outside)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A NOVA_HOME with master keys, and the folder of agents' directories in it."""
    home = tmp_path / "home"
    (home / "workspace" / "ten_1" / "clerk").mkdir(parents=True)
    (home / "workspace" / "ten_1" / "clerk" / "note.txt").write_text("a note")
    (home / "data").mkdir()
    for path in (home / "master_keys", home / "data" / "rows"):
        path.write_text(SECRET)
    return home


@pytest.mark.parametrize("enclosed", [False, True])
@proves("ceilings.home")
async def test_no_tool_opens_the_files_of_the_fleet_at_any_trust(tmp_path: Path, home: Path, *, enclosed: bool) -> None:
    """Not by a path, a link, a search or /proc, even if the agent has all directories."""
    clerk = home / "workspace" / "ten_1" / "clerk"
    (clerk / "keys").symlink_to(home / "master_keys")
    (clerk / "self").symlink_to("/proc/self")
    native = NativeTools(private=PrivateFiles(home, home / "workspace"))
    enclosure = Enclosure(("/",)) if enclosed else None
    options = EngineOptions(cwd=str(clerk), directories=("/",), enclosure=enclosure)
    caller = NativeToolCaller(native, clerk).with_tools(native.for_turn(options, "unrestricted"))
    paths = [str(home / "master_keys"), "../../../master_keys", "keys"]
    for path in (*paths, "/proc/self/environ", "self/environ", f"/proc/{os.getppid()}/environ"):
        assert "no tool opens it" in await caller.failure("Read", file_path=path)
    assert "no tool opens it" in await caller.failure("Write", file_path=str(home / "api_key"), content="mine")
    assert "no tool opens it" in await caller.failure("Glob", pattern="**/*", path=str(home / "data"))
    assert await caller.call("Grep", pattern="secret|note", path=str(tmp_path)) == f"{clerk}/note.txt:1:a note"
    assert await caller.call("Glob", pattern="**/*", path=str(tmp_path)) == f"{clerk}/note.txt"
    native.close()


@proves("security.files")
async def test_a_directory_that_becomes_a_link_leads_nowhere_outside_the_ceilings(
    tmp_path: Path, outside: Path
) -> None:
    """Another agent of the tenant may have replaced it."""
    ceiling = tmp_path / "acme"
    (ceiling / "in").mkdir(parents=True)
    native = NativeTools()
    options = EngineOptions(cwd=str(ceiling / "in"), enclosure=Enclosure((str(ceiling),)))
    caller = NativeToolCaller(native, ceiling / "in").with_tools(native.for_turn(options, "controlled"))
    await caller.call("Write", file_path="mine.txt", content="mine")
    (ceiling / "in").rename(ceiling / "was")
    (ceiling / "in").symlink_to(outside)
    assert "outside the directories of this tenant" in await caller.failure("Read", file_path="secret.txt")
    assert "outside the directories of this tenant" in await caller.failure("Grep", pattern="secret")
    native.close()


async def test_an_agent_with_a_directory_of_its_own_writes_there_alone_and_reads_around_it(tmp_path: Path) -> None:
    workspace, own, other = tmp_path / "nova", tmp_path / "nova" / "part", tmp_path / "nova" / "other"
    for directory in (own, other):
        directory.mkdir(parents=True)
        (directory / "note").write_text(f"of {directory.name}\n")
    (own / "link").symlink_to(other)
    native = NativeTools()
    options = EngineOptions(cwd=str(own), readable=(str(workspace),))
    caller = NativeToolCaller(native, own).with_tools(native.for_turn(options, "controlled"))
    assert await caller.call("Read", file_path="../other/note") == "of other\n"
    assert "other/note" in await caller.call("Grep", pattern="of other", path=str(workspace))
    for path in ("../other/note", str(other / "new"), "link/note", str(workspace / "new")):
        assert "you may read it, and not write it" in await caller.failure("Write", file_path=path, content="x")
    refused = await caller.failure("Edit", file_path="../other/note", old_string="of", new_string="x")
    assert "you may read it, and not write it" in refused
    await caller.call("Write", file_path="deep/new", content="mine")
    assert (own / "deep" / "new").read_text() == "mine"
    assert (other / "note").read_text() == "of other\n"
    native.close()


async def test_a_link_in_place_of_the_own_directory_leads_nowhere(tmp_path: Path) -> None:
    workspace, outside = tmp_path / "nova", tmp_path / "outside"
    for directory in (workspace, outside):
        directory.mkdir()
    (outside / "secret").write_text("hush")
    (workspace / "part").symlink_to(outside)
    native = NativeTools()
    options = EngineOptions(cwd=str(workspace / "part"), readable=(str(workspace),))
    caller = NativeToolCaller(native, workspace).with_tools(native.for_turn(options, "controlled"))
    assert "outside the directories" in await caller.failure("Read", file_path="secret")
    assert "outside the directories" in await caller.failure("Write", file_path="new", content="x")
    assert sorted(path.name for path in outside.iterdir()) == ["secret"]
    native.close()


async def test_the_folder_of_other_agents_is_read_and_not_written(tmp_path: Path) -> None:
    (kept := tmp_path / "orc_1").mkdir()
    (kept / "note").write_text("theirs\n")
    native = NativeTools()
    options = EngineOptions(cwd=str(tmp_path), kept=str(kept))
    caller = NativeToolCaller(native, tmp_path).with_tools(native.for_turn(options, "controlled"))
    assert await caller.call("Read", file_path="orc_1/note") == "theirs\n"
    assert "where other agents work" in await caller.failure("Write", file_path="orc_1/note", content="mine")
    await caller.call("Write", file_path="note", content="mine")
    native.close()
