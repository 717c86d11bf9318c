"""The notes capability on real Postgres: visibility, permissions, and concurrent changes."""

import asyncio
from typing import Any

import pytest
from inline_snapshot import snapshot

from nova_workers.base.clock import SystemClock
from nova_workers.base.config import Settings
from nova_workers.contracts.http.notes import MAX_NOTE_CHARS
from nova_workers.domain.capabilities.rules import default_registry
from nova_workers.domain.notes.rules import MAX_NOTES_PER_AGENT, NoteChange, change_note
from nova_workers.ledger.database import Database
from nova_workers.ledger.work import Work
from tests.integration.capabilities.tool_caller import ToolCaller, add_tenants
from tests.requirements import proves


@pytest.fixture(autouse=True)
async def tenants(database: Database) -> None:
    await add_tenants(database)


async def _written(caller: ToolCaller, title: str = "Plan", content: str = "one\ntwo\n") -> str:
    return (await caller.call("note_create", title=title, content=content)).removeprefix("Created ").removesuffix(".")


async def _content(database: Database, note_id: str) -> str:
    return await database.fetchval("SELECT content FROM notes WHERE id = :note_id", note_id=note_id)


async def _deliveries(database: Database) -> list[dict[str, Any]]:
    rows = await database.fetch("SELECT kind, target, agent_id, run_id, payload FROM deliveries ORDER BY id")
    return [dict(row) for row in rows]


async def test_a_note_is_written_read_changed_and_deleted(database: Database) -> None:
    caller = ToolCaller(database)
    note_id = await _written(caller, "  Plan ")
    assert (await caller.call("note_read", note_id=note_id)).endswith("8 characters)\n\none\ntwo\n")
    assert (await caller.call("note_list")).startswith(f"{note_id} 'Plan' (by a, ")
    await caller.call("note_update", note_id=note_id, append="three")
    await caller.call("note_update", note_id=note_id, old_text="two", new_text="2")
    await caller.call("note_update", note_id=note_id, title="Better plan")
    assert await _content(database, note_id) == "one\n2\nthree"
    await caller.call("note_update", note_id=note_id, append="four")
    assert await _content(database, note_id) == "one\n2\nthree\nfour"
    await caller.call("note_update", note_id=note_id, content="")
    assert "(nothing)" in await caller.call("note_read", note_id=note_id)
    assert "'Better plan'" in await caller.call("note_list")
    assert await caller.call("note_delete", note_id=note_id) == f"Deleted {note_id}."
    assert await caller.call("note_list") == "There are none."
    assert await caller.call("note_read", note_id=note_id) == f"!There is no note {note_id!r}. Was it deleted?"


@proves("audit.who")
async def test_what_an_agent_changes_with_a_tool_is_in_the_audit_log_with_its_run(database: Database) -> None:
    caller = ToolCaller(database)
    note_id = await _written(caller)
    await caller.call("note_read", note_id=note_id)
    await caller.call("note_delete", note_id=note_id)
    rows = await database.fetch(
        "SELECT action, target_id, actor_kind, actor_id, run_id, address FROM audit_events ORDER BY id"
    )
    assert [tuple(row) for row in rows] == [
        ("note.created", note_id, "agent", "a", "run_1", None),
        ("note.deleted", note_id, "agent", "a", "run_1", None),
    ]


@proves("notes.seen")
async def test_other_agents_see_only_shared_notes_and_change_none(database: Database) -> None:
    owner, other, stranger = (ToolCaller(database, *who) for who in (("ten_1", "a"), ("ten_1", "b"), ("ten_2", "a")))
    note_id = await _written(owner)
    unknown = f"!There is no note {note_id!r}. Was it deleted?"
    for caller in (other, stranger):
        assert await caller.call("note_read", note_id=note_id) == unknown
        assert await caller.call("note_update", note_id=note_id, append="x") == unknown
        assert await caller.call("note_delete", note_id=note_id) == unknown
        assert await caller.call("note_list", whose="others") == "There are none."
    await owner.call("note_share", note_id=note_id)
    assert note_id in await other.call("note_list", whose="others")
    assert (await other.call("note_read", note_id=note_id)).endswith("one\ntwo\n")
    for tool, given in (
        ("note_update", {"append": "x"}),
        ("note_delete", {}),
        ("note_share", {"shared": False}),
        ("note_pin", {}),
    ):
        said = await other.call(tool, note_id=note_id, **given)
        assert said.startswith(f"!Note {note_id!r} belongs to agent 'a'"), said
        assert await stranger.call(tool, note_id=note_id, **given) == unknown
    assert await other.call("note_list") == "There are none."
    assert await stranger.call("note_list", whose="others") == "There are none."
    assert await owner.call("note_list", whose="others") == "There are none."
    assert await _content(database, note_id) == "one\ntwo\n"


@proves("deliveries.note")
async def test_a_shared_note_is_delivered_once_per_run_unless_it_was_unshared(database: Database) -> None:
    caller = ToolCaller(database)
    note_id = await _written(caller)
    assert await _deliveries(database) == []
    for _ in range(2):
        assert await caller.call("note_share", note_id=note_id) == f"{note_id} is shared."
    assert await _deliveries(database) == [
        {
            "kind": "note",
            "target": "user",
            "agent_id": "a",
            "run_id": "run_1",
            "payload": {"note_id": note_id, "title": "Plan"},
        }
    ]
    await database.execute("UPDATE deliveries SET status = 'delivered'")
    await caller.call("note_share", note_id=note_id, shared=False)
    await caller.call("note_share", note_id=note_id)
    assert len(await _deliveries(database)) == 1
    await ToolCaller(database, run_id="run_2").call("note_share", note_id=note_id, shared=False)
    await ToolCaller(database, run_id="run_2").call("note_share", note_id=note_id)
    assert len(await _deliveries(database)) == 2
    await caller.call("note_share", note_id=note_id, shared=False)
    assert [row["run_id"] for row in await _deliveries(database)] == ["run_1"]
    await ToolCaller(database, run_id="run_3").call("note_share", note_id=note_id)
    await caller.call("note_delete", note_id=note_id)
    assert [row["run_id"] for row in await _deliveries(database)] == ["run_1"]


async def test_notes_are_pinned_and_listed_page_by_page(database: Database) -> None:
    caller = ToolCaller(database)
    ids = [await _written(caller, f"Note {number}") for number in range(3)]
    await caller.call("note_pin", note_id=ids[0])
    assert [line.split()[0] for line in (await caller.call("note_list", pinned=True)).splitlines()] == ids[:1]
    newest, more = (await caller.call("note_list", limit=1)).splitlines()
    assert newest.startswith(ids[2])
    assert more == f"There may be more: ask with before={ids[2]}."
    rest = await caller.call("note_list", before=ids[2])
    assert [line.split()[0] for line in rest.splitlines()] == [ids[1], ids[0]]
    assert await caller.call("note_pin", note_id=ids[0], pinned=False) == f"{ids[0]} is not pinned any more."
    assert await caller.call("note_list", pinned=True) == "There are none."


async def test_a_long_note_is_read_in_parts(database: Database) -> None:
    caller = ToolCaller(database)
    note_id = await _written(caller, content="x" * 30_000 + "the end")
    first = await caller.call("note_read", note_id=note_id)
    assert "the end" not in first
    assert first.endswith("(It goes on: read with start=30000.)")
    assert (await caller.call("note_read", note_id=note_id, start=30_000)).endswith("\n\nthe end")


@proves("notes.passage")
@pytest.mark.parametrize(("content", "says"), [("one", "does not occur"), ("ab ab", "more than once"), ("aba", None)])
async def test_a_passage_is_replaced_only_if_it_occurs_once(database: Database, content: str, says: str | None) -> None:
    caller = ToolCaller(database)
    note_id = await _written(caller, content=content)
    said = await caller.call("note_update", note_id=note_id, old_text="ab", new_text="x")
    assert await _content(database, note_id) == (content if says else "xa")
    if says:
        assert said.startswith("!old_text: 'ab' ")
        assert says in said


async def test_a_passage_that_overlaps_itself_is_refused(database: Database) -> None:
    caller = ToolCaller(database)
    note_id = await _written(caller, content="aaa")
    assert "more than once" in await caller.call("note_update", note_id=note_id, old_text="aa", new_text="x")


@proves("notes.concurrent")
async def test_concurrent_changes_of_a_note_are_all_kept(database: Database) -> None:
    caller = ToolCaller(database)
    note_id = await _written(caller, content="")
    await asyncio.gather(
        *(caller.call("note_update", note_id=note_id, append=f"line {number}") for number in range(8)),
        change_note(Work(database), "ten_1", note_id, NoteChange(title="By a person")),
    )
    row = await database.fetchrow("SELECT title, content FROM notes WHERE id = :note_id", note_id=note_id)
    assert row is not None
    assert row["title"] == "By a person"
    assert sorted(row["content"].splitlines()) == [f"line {number}" for number in range(8)]


@pytest.mark.parametrize(
    ("tool", "given", "says"),
    [
        ("note_create", {"title": " ", "content": "x"}, "title: String should have at least 1 character"),
        ("note_create", {"title": "x" * 201, "content": "x"}, "title: String should have at most 200"),
        ("note_create", {"title": "two\nlines", "content": "x"}, "title: String should match pattern"),
        ("note_create", {"title": "\x1b[31m", "content": "x"}, "title: String should match pattern"),
        ("note_create", {"title": "x", "content": "x" * (MAX_NOTE_CHARS + 1)}, "content: String should have at most"),
        ("note_create", {"title": "x", "content": 7}, "content: Input should be a valid string"),
        ("note_create", {"title": "x", "content": "x", "agent_id": "b"}, "agent_id: Extra inputs"),
        ("note_read", {"note_id": "x'; DROP TABLE notes"}, "note_id: String should match pattern"),
        ("note_read", {"note_id": "note_" + "0" * 26, "start": -1}, "start: Input should be greater"),
        ("note_update", {"note_id": "note_" + "0" * 26}, "nothing to change"),
        ("note_update", {"note_id": "note_" + "0" * 26, "content": "x", "append": "y"}, "only one of"),
        ("note_update", {"note_id": "note_" + "0" * 26, "old_text": "x"}, "go together"),
        ("note_update", {"note_id": "note_" + "0" * 26, "old_text": "", "new_text": "x"}, "old_text: String should"),
        ("note_list", {"limit": 101}, "limit: Input should be less"),
        ("note_list", {"whose": "all"}, "whose: Input should be 'mine' or 'others'"),
    ],
)
async def test_bad_arguments_are_explained_to_the_model(
    database: Database, tool: str, given: dict[str, Any], says: str
) -> None:
    said = await ToolCaller(database).call(tool, **given)
    assert said.startswith("!")
    assert says in said


async def test_text_of_a_note_that_the_database_refuses_is_sanitized(database: Database) -> None:
    caller = ToolCaller(database)
    note_id = await _written(caller, content="a\x00b")
    assert await _content(database, note_id) == "a\ufffdb"
    assert (await caller.call("note_update", note_id=note_id, append="\x00")).startswith("Changed")


async def test_the_length_of_a_note_is_limited(database: Database) -> None:
    caller = ToolCaller(database)
    note_id = await _written(caller, content="x" * MAX_NOTE_CHARS)
    assert "at most 100000 characters; this one would have 100002" in await caller.call(
        "note_update", note_id=note_id, append="y"
    )


async def test_the_notes_of_an_agent_are_limited(database: Database) -> None:
    await database.execute(
        "INSERT INTO notes (id, tenant_id, agent_id, title) "
        "SELECT 'note_' || lpad(n::text, 26, '0'), 'ten_1', 'a', 'x' FROM generate_series(1, :many::int) n",
        many=MAX_NOTES_PER_AGENT,
    )
    said = await ToolCaller(database).call("note_create", title="One more", content="")
    assert said.startswith(f"!Agent 'a' has {MAX_NOTES_PER_AGENT} notes, which is the most.")
    assert (await ToolCaller(database, agent_id="b").call("note_create", title="x", content="")).startswith("Created")


def test_the_tools_declare_what_may_be_run_again(database: Database) -> None:
    registry = default_registry(database, Settings(), SystemClock())
    (info,) = (item for item in registry.discover() if item.name == "notes")
    assert [(tool.name, tool.idempotent, tool.read_only) for tool in info.tools] == snapshot(
        [
            ("note_create", True, False),
            ("note_list", True, True),
            ("note_read", True, True),
            ("note_update", True, False),
            ("note_delete", True, False),
            ("note_share", True, False),
            ("note_pin", True, False),
        ]
    )
