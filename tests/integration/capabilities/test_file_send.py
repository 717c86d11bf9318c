"""The file-send capability on real Postgres and a real disk: what it sends, and what it refuses to read."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nova_workers.base.config import Settings
from nova_workers.base.confined import Confinement
from nova_workers.domain.files.rules import MAX_FILES_PER_RUN
from nova_workers.ledger.database import Database, Row
from tests.integration.capabilities.tool_caller import ToolCaller, add_tenants
from tests.requirements import proves

SECRET = "the secret outside"

MakeToolCaller = Callable[..., ToolCaller]


@pytest.fixture(autouse=True)
async def tenants(database: Database) -> None:
    await add_tenants(database)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The working directory of the agent `a`, beside a file that is not its own."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text(SECRET)
    work = tmp_path / "workspace" / "ten_1" / "a"
    work.mkdir(parents=True)
    return work


@pytest.fixture
def caller(database: Database, work: Path, tmp_path: Path) -> MakeToolCaller:
    """Makes a run of an agent that has files."""

    def make(**given: Any) -> ToolCaller:
        settings = Settings.model_validate({"home": tmp_path, "tools": {"send_file_max_bytes": 1_000}})
        given.setdefault("trust", "controlled")
        return ToolCaller(database, settings=settings, **given)

    return make


async def _files(database: Database) -> list[Row]:
    return await database.fetch("SELECT * FROM sent_files ORDER BY id")


async def test_a_file_of_the_working_directory_arrives_with_its_delivery(
    database: Database, caller: MakeToolCaller, work: Path
) -> None:
    (work / "out").mkdir()
    (work / "out" / "report ü.pdf").write_bytes(b"%PDF-\x00\xff")
    said = await caller().call("file_send", path="out/report ü.pdf", caption="  For you\x00 ")
    (file,) = await _files(database)
    assert said == f"Sent report ü.pdf (7 bytes) as {file['id']}."
    assert (file["tenant_id"], file["agent_id"], file["thread_id"], file["run_id"]) == ("ten_1", "a", "thr_1", "run_1")
    assert (file["content"], file["media_type"], file["caption"]) == (
        b"%PDF-\x00\xff",
        "application/pdf",
        "For you\ufffd",
    )
    (delivery,) = await database.fetch("SELECT * FROM deliveries")
    assert (delivery["kind"], delivery["target"], delivery["status"]) == ("file", "user", "pending")
    assert delivery["payload"] == {
        "file_id": file["id"],
        "name": "report ü.pdf",
        "media_type": "application/pdf",
        "size_bytes": 7,
        "caption": "For you\ufffd",
    }


async def test_directories_of_the_agent_are_read_too(
    database: Database, caller: MakeToolCaller, work: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # Not within the fleet's own folder, which no tool opens.
    other = tmp_path_factory.mktemp("other")
    (other / "x.csv").write_text("1,2")
    assert (await caller(directories=(str(other),)).call("file_send", path=str(other / "x.csv"))).startswith(
        "Sent x.csv"
    )
    assert (await caller().call("file_send", path=str(other / "x.csv"))).startswith("!'")
    assert [file["media_type"] for file in await _files(database)] == ["text/csv"]


async def test_an_agent_without_files_sends_text(database: Database, caller: MakeToolCaller, work: Path) -> None:
    (work / "here.txt").write_text("x")
    sandbox = caller(trust="sandbox")
    assert await sandbox.call("file_send", path="here.txt") == (
        "!You work without files (your trust is 'sandbox'). Give content and name, not path."
    )
    assert (await sandbox.call("file_send", content="# Überblick", name="a.md")).startswith("Sent a.md (12 bytes)")
    (file,) = await _files(database)
    assert (file["content"].decode(), file["media_type"]) == ("# Überblick", "text/markdown")


@proves("files.confined")
@pytest.mark.parametrize(
    "path",
    [
        "../../../outside/secret.txt",
        "{outside}/secret.txt",
        "sub/../../../../outside/secret.txt",
        "link.txt",
        "linked/secret.txt",
        "chain/secret.txt",
        "up/outside/secret.txt",
        "dangling.txt",
        "loop",
        "/etc/passwd",
        "/proc/self/environ",
        "~/secret.txt",
        "",
        ".",
        "sub",
        "pipe",
        "no\x00ne",
        "nothing.txt",
        "x" * 300,
        "x" * 5_000,
    ],
)
async def test_files_outside_the_directories_are_not_read(
    database: Database, caller: MakeToolCaller, work: Path, tmp_path: Path, path: str
) -> None:
    outside = tmp_path / "outside"
    (work / "sub").mkdir()
    (work / "link.txt").symlink_to(outside / "secret.txt")
    (work / "linked").symlink_to(outside)
    (work / "chain").symlink_to("linked")
    (work / "up").symlink_to("../../..")
    (work / "dangling.txt").symlink_to(outside / "none.txt")
    (work / "loop").symlink_to("loop")
    os.mkfifo(work / "pipe")
    said = await asyncio.wait_for(caller().call("file_send", path=path.format(outside=outside)), 60)
    assert said.startswith("!")
    assert SECRET not in said
    assert await _files(database) == []
    assert await database.fetchval("SELECT count(*) FROM deliveries") == 0


@proves("files.confined")
@pytest.mark.parametrize("exchanged", ["d", "d/inner", "d/inner/secret.txt"])
def test_a_link_that_appears_after_the_check_is_not_followed(work: Path, tmp_path: Path, exchanged: str) -> None:
    outside = tmp_path / "outside"
    (outside / "inner").mkdir()
    (outside / "inner" / "secret.txt").write_text(SECRET)
    target = work / "d" / "inner" / "secret.txt"
    target.parent.mkdir(parents=True)
    target.write_text("inside")
    confinement = Confinement((str(work),))
    checked = confinement.resolve("d/inner/secret.txt")
    (work / exchanged).rename(work / "away")
    (work / exchanged).symlink_to({"d": outside, "d/inner": outside / "inner"}.get(exchanged, outside / "secret.txt"))
    with pytest.raises(OSError, match=r"symbolic|directory"):
        confinement.open_file(checked, os.O_RDONLY)


async def test_another_agents_files_are_not_read(database: Database, caller: MakeToolCaller, work: Path) -> None:
    (work / "mine.txt").write_text("x")
    for stranger in (caller(agent_id="b"), caller(tenant_id="ten_2")):
        assert (await stranger.call("file_send", path=str(work / "mine.txt"))).startswith("!")
        assert (await stranger.call("file_send", path="mine.txt")).startswith("!")
    assert await _files(database) == []


@pytest.mark.parametrize("size", [1_000, 1_001])
async def test_the_size_of_a_file_is_limited(database: Database, caller: MakeToolCaller, work: Path, size: int) -> None:
    (work / "big.bin").write_bytes(b"x" * size)
    for given in ({"path": "big.bin"}, {"content": "x" * size, "name": "big.bin"}):
        said = await caller().call("file_send", **given)
        fits = size <= 1_000
        assert said.startswith("Sent" if fits else f"!A file that is sent has at most 1000 bytes, this one {size}.")
    # The second is the same file again.
    assert len(await _files(database)) == (1 if size <= 1_000 else 0)


@proves("files.whole")
async def test_the_same_file_again_in_one_run_is_sent_once(
    database: Database, caller: MakeToolCaller, work: Path
) -> None:
    (work / "a.txt").write_text("x")
    said = await asyncio.gather(*(caller().call("file_send", path="a.txt") for _ in range(4)))
    assert len(set(said)) == 1
    (work / "a.txt").write_text("y")
    await caller().call("file_send", path="a.txt")
    await caller().call("file_send", path="a.txt", caption="again")
    await caller(run_id="run_2").call("file_send", path="a.txt")
    assert len(await _files(database)) == 4
    told = await database.fetch("SELECT payload FROM deliveries ORDER BY id")
    assert [row["payload"]["file_id"] for row in told] == [file["id"] for file in await _files(database)]


@proves("files.whole", "deliveries.bounded")
async def test_the_files_of_a_run_are_limited_and_none_is_stored_unsent(
    database: Database, caller: MakeToolCaller
) -> None:
    run = caller()
    said = await asyncio.gather(
        *(run.call("file_send", content=str(number), name=f"{number}.txt") for number in range(MAX_FILES_PER_RUN + 3))
    )
    assert sum(text.startswith("!This run has handed 20 of the kind 'file'") for text in said) == 3
    assert len(await _files(database)) == MAX_FILES_PER_RUN
    assert await database.fetchval("SELECT count(*) FROM deliveries") == MAX_FILES_PER_RUN


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "give either path or content"),
        ({"path": "a", "content": "b", "name": "c"}, "give either path or content"),
        ({"content": "b"}, "content needs a name"),
        ({"content": "b", "name": "../x"}, "name: String should match pattern"),
        ({"content": "b", "name": "a\\b"}, "name: String should match pattern"),
        ({"content": "b", "name": "a\nb"}, "name: String should match pattern"),
        ({"content": "b", "name": ".."}, "is not the name of a file"),
        ({"content": "b", "name": "   "}, "is not the name of a file"),
        ({"content": "b", "name": "x" * 201}, "name: String should have at most"),
        ({"content": "b", "name": "x", "caption": "c" * 1_001}, "caption: String should have at most"),
        ({"content": "b", "name": "x", "caption": " "}, "caption: String should have at least"),
        ({"content": "b", "name": "x", "to": "somebody"}, "to: Extra inputs"),
        ({"path": 7}, "path: Input should be a valid string"),
    ],
)
async def test_bad_arguments_are_explained_to_the_model(
    database: Database, caller: MakeToolCaller, given: dict[str, Any], says: str
) -> None:
    said = await caller().call("file_send", **given)
    assert said.startswith("!")
    assert says in said
    assert await _files(database) == []
