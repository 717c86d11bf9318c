"""A tenant is exported as a folder, and imported unchanged into another fleet."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import ARRAY, JSON, BigInteger, Boolean, DateTime, Integer, LargeBinary, Numeric
from starlette.types import Message

from api.guard.archives import ArchivePermits, ArchiveResponse
from models.tables import metadata
from nova_workers.base.config import Settings
from nova_workers.base.config.sections import ApiSettings
from nova_workers.base.errors import Conflict, Forbidden, InvalidInput, NovaError, Unavailable
from nova_workers.cli.archive.reader import read_folder
from nova_workers.cli.archive.writer import FolderWriter
from nova_workers.client.client import NovaClient
from nova_workers.contracts.http.archive import MEDIA_TYPE, ImportResult
from nova_workers.contracts.http.wire import AgentReplace
from nova_workers.domain.archive.sql.tables import KEPT, LEFT_OUT, references
from nova_workers.ledger.database import Database, PostgresDatabase
from tests.integration.api.conftest import Api, served
from tests.integration.api.manual_worker import ManualWorker, Tenant, make_tenant
from tests.requirements import proves
from tests.support.data.archive_rows import SKILL, archive_tables, small_row
from tests.support.servers.databases import own_database
from tests.support.waiting import stays, until

MOMENT = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)
SPEC: dict[str, Any] = {
    "name": "Clerk",
    "instructions": "Be brief.\r\n\n— always.",
    "capabilities": {"memory": {"tools": None, "config": {}}},
    "skills": ["pdf"],
}
CONTEXT = {"at": "2026-01-02T12:00:00+00:00", "timezone": "Europe/Oslo", "source": "api", "queue": "interactive"}
BLOCKS = [{"type": "text", "text": "Hi \u2028\x1f there"}, {"type": "tool_use", "input": {"x": 1.5, "y": None}}]
GIVEN: dict[str, dict[str, Any]] = {
    "agents": {"renamed_to": None, "id": "clerk", "version": 2, "spec": SPEC, "deleted_at": None},
    "agent_versions": {"agent_id": "clerk", "version": 1, "spec": SPEC, "created_by": "person"},
    "skills": {"name": "pdf", "skill_md": SKILL, "description": "", "body": "", "front_matter": {}},
    "skill_files": {"skill_name": "pdf", "path": "scripts/deep/run.py", "content": b"\x00\xffprint()\r\n"},
    "tasks": {"id": 7, "status": "done", "parent_task_id": None, "parent_step_id": None, "thread_id": "thr_1",
              "owner_agent_id": "clerk"},
    "task_steps": {"task_id": 7, "subtask_id": None},
    "task_resources": {"task_id": 7, "kind": "url"},
    "task_changes": {"task_id": 7},
    "triggers": {
        "id": "trg_1",
        "kind": "cron",
        "schedule": "0 6 * * *",
        "timezone": "Europe/Berlin",
        "thread_id": "thr_1",
        "action": "orchestrate",
        "overlap": "skip",
        "catchup": "once",
        "gate": {"kind": "idle", "for_s": 60},
        "deleted_at": None,
    },
    "trigger_firings": {"trigger_id": "trg_1", "run_id": "run_1", "outcome": "fired", "skip_reason": "gate"},
    "notes": {"title": 'A: "title"\n---\n', "content": "---\n\n---\nText\r\n\n"},
    "sent_files": {"thread_id": "thr_1", "run_id": "run_1", "content": bytes(range(256)), "name": "../../etc/passwd"},
    "deliveries": {
        "kind": "note", "target": "user", "webhook_id": None, "status": "delivered", "run_id": "run_1",
        "thread_id": "thr_1",
    },
    "threads": {
        "id": "thr_1", "head_turn_id": "turn_2", "active_run_id": None, "session_id": "ses_1", "task_id": 7,
        "forked_from_thread_id": None, "forked_from_turn_id": None, "deleted_at": None, "origin": "api",
    },
    "runs": {
        "id": "run_1", "thread_id": "thr_1", "status": "succeeded", "queue": "background", "on_busy": "steer",
        "source": "api", "parent_run_id": None, "lease_expires_at": None, "merged_into": None, "turn_id": "turn_1",
        "content": BLOCKS, "limit_reached": "turns", "hold": None, "stop_reason": "end_turn",
    },
    "turns": {
        "id": "turn_1", "thread_id": "thr_1", "run_id": "run_1", "parent_turn_id": None, "depth": 0, "type": "normal",
        "status": "failed", "cost_usd": "1234567890.12345678", "tools_available": ["Read"], "stop_reason": "error",
    },
    "messages": {"thread_id": "thr_1", "turn_id": "turn_1", "run_id": None, "kind": "query", "role": "user",
                 "content": BLOCKS, "context": CONTEXT},
    "tool_calls": {"turn_id": "turn_1", "status": "completed", "spawned_run_id": None, "result": BLOCKS},
    "compactions": {
        "turn_id": "turn_2", "summarized_through_turn_id": "turn_1", "first_kept_turn_id": None,
        "trigger": "context_limit",
    },
    "usage": {"thread_id": "thr_1", "turn_id": "turn_1", "run_id": "run_1", "cost_usd": "0.00000001"},
    "run_waits": {"run_id": "run_1", "kind": "user", "status": "resolved", "child_run_id": None,
                  "request": {"kind": "user", "question": "Which?"}},
    "feedback": {"run_id": "run_1", "thread_id": "thr_1", "score": -0.25, "source": "user"},
    "thread_states": {"thread_id": "thr_1"},
    "thread_heads": {"thread_id": "thr_1", "turn_id": "turn_1", "run_id": "run_1", "move": "turn"},
}  # fmt: skip


async def _insert(database: Database, tenant_id: str, table: str, **given: Any) -> None:
    """Insert a row that has a value in every column, so that none can be forgotten."""
    row: dict[str, Any] = {"tenant_id": tenant_id}
    for at, column in enumerate(metadata.tables[table].columns):
        if column.identity is not None or column.computed is not None or column.name == "tenant_id":
            continue
        match column.type:
            case JSON():
                value: Any = {"b": at, "a": "ä"}
            case ARRAY():
                value = ["a", "ä"]
            case Numeric():
                value = "1.5"
            case Boolean():
                value = True
            case Integer() | BigInteger():
                value = at + 1
            case DateTime():
                value = MOMENT + timedelta(seconds=at)
            case LargeBinary():
                value = b"\x01\x02"
            case _:
                value = f"{table}_{column.name}" if column.name != "agent_id" else "clerk"
        row[column.name] = value
    row |= GIVEN.get(table, {}) | given
    marks = ", ".join(f":{name}{'::text::numeric' if name == 'cost_usd' else ''}" for name in row)
    names = ", ".join(f'"{name}"' for name in row)
    await database.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", **row)


@pytest.fixture
async def full(database: Database, tenant: Tenant) -> str:
    """A tenant that has a row in every table."""
    for kept in KEPT:
        await _insert(database, tenant.id, kept.name)
        if kept.name == "turns":
            second = {"id": "turn_2", "parent_turn_id": "turn_1", "depth": 1, "type": "compaction", "run_id": None}
            await _insert(database, tenant.id, "turns", **second)
    await _insert(database, tenant.id, "agent_versions", version=2)
    await _insert(database, tenant.id, "memories", id="mem_2")
    await _insert(database, tenant.id, "tasks", id=8, status="active", thread_id=None)
    await _insert(database, tenant.id, "task_steps", id="step_8", task_id=8)
    await database.execute("UPDATE tenants SET next_task_id = 40 WHERE id = :tenant_id", tenant_id=tenant.id)
    return tenant.id


@pytest.fixture
async def elsewhere(postgres_url_admin: str) -> AsyncIterator[str]:
    """URL of another fleet's database."""
    async with own_database(postgres_url_admin) as url:
        yield url


@pytest.fixture
async def target(settings: Settings, elsewhere: str) -> AsyncIterator[tuple[NovaClient, Database, str]]:
    """Another fleet with a fresh tenant: a client, its database, and the tenant."""
    there = settings.model_copy(update={"database_url": SecretStr(elsewhere)})
    database = PostgresDatabase(elsewhere, pool_size=2)
    tenant = await make_tenant(database)
    async with served(there) as (url, _), NovaClient(url, tenant.key) as nova:
        yield nova, database, tenant.id
    await database.close()


async def _export(nova: NovaClient, folder: Path) -> FolderWriter:
    writer = FolderWriter(folder)
    async for line in nova.archives.export():
        writer.take(line)
    writer.close()
    return writer


async def _import(nova: NovaClient, folder: Path, *, merge: bool = False) -> ImportResult:
    return await nova.archives.import_(_each(read_folder(folder)), merge=merge)


async def _each(lines: Iterable[bytes]) -> AsyncGenerator[bytes]:
    for line in lines:
        yield line


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def _rows(database: Database | Api, tenant_id: str) -> int:
    """Return how many rows of archives a tenant has."""
    counts = (f"(SELECT count(*) FROM {kept.name} WHERE tenant_id = :tenant_id)" for kept in KEPT)
    return await database.fetchval(f"SELECT {' + '.join(counts)}", tenant_id=tenant_id)


@pytest.fixture
async def source(own_api: Api) -> AsyncIterator[NovaClient]:
    """A client of the fleet that is exported from."""
    async with NovaClient(own_api.url, own_api.tenant.key) as nova:
        yield nova


@pytest.fixture
async def nova(api: Api) -> AsyncIterator[NovaClient]:
    """A client of a fleet into which nothing is imported: another tenant's archive would have the same ids."""
    async with NovaClient(api.url, api.tenant.key) as nova:
        yield nova


@pytest.mark.usefixtures("full")
@proves("archive.round-trip")
async def test_what_is_exported_and_imported_is_exported_again_to_the_byte(
    source: NovaClient, target: tuple[NovaClient, Database, str], tmp_path: Path
) -> None:
    nova, database, tenant_id = target
    writer = await _export(source, tmp_path / "one")
    assert set(writer.counts) == {kept.name for kept in KEPT}
    result = await _import(nova, tmp_path / "one")
    assert result.written == dict(writer.counts)
    assert result.kept == {}
    await _export(nova, tmp_path / "two")
    assert _files(tmp_path / "one") == _files(tmp_path / "two")
    assert await database.fetchval("SELECT next_task_id FROM tenants WHERE id = :tenant_id", tenant_id=tenant_id) == 40
    effects = await database.fetch("SELECT run_id, kind, status FROM effects")
    assert [tuple(effect) for effect in effects] == [("run_1", "embeddings", "pending")]


@pytest.mark.usefixtures("full")
async def test_the_folder_is_readable_for_people(source: NovaClient, tmp_path: Path) -> None:
    await _export(source, tmp_path / "one")
    files = _files(tmp_path / "one")
    assert [name for name in sorted(files) if "agents/clerk" in name or "agents" not in name] == [
        "agents/clerk/agent.json",
        "agents/clerk/files/sent_files_id.content",
        "agents/clerk/files/sent_files_id.json",
        "agents/clerk/firings.jsonl",
        "agents/clerk/instructions.md",
        "agents/clerk/notes/notes_id.md",
        "agents/clerk/threads/thr_1.jsonl",
        "agents/clerk/triggers.json",
        "agents/clerk/versions.jsonl",
        "deliveries.jsonl",
        "memories.json",
        "settings.json",
        "skills/pdf.json",
        "skills/pdf/SKILL.md",
        "skills/pdf/scripts/deep/run.py",
        "tasks/active.jsonl",
        "tasks/history/7.jsonl",
    ]
    assert files["agents/clerk/instructions.md"].decode() == SPEC["instructions"]
    assert files["skills/pdf/SKILL.md"].decode() == SKILL
    assert files["agents/clerk/files/sent_files_id.content"] == bytes(range(256))
    kinds = [next(iter(json.loads(line))) for line in files["agents/clerk/threads/thr_1.jsonl"].splitlines()]
    assert kinds == [
        *(
            "thread",
            "state",
            "run",
            "turn",
            "turn",
            "message",
            "tool_call",
            "compaction",
            "usage",
            "feedback",
            "wait",
            "head",
        )
    ]
    assert b"ses_1" not in files["agents/clerk/threads/thr_1.jsonl"]


def test_every_table_is_exported_or_left_out_with_a_reason() -> None:
    kept = {table.name for table in KEPT}
    assert kept.isdisjoint(LEFT_OUT)
    assert kept | LEFT_OUT.keys() == set(metadata.tables)


@pytest.mark.usefixtures("full")
async def test_what_people_change_in_the_folder_is_imported(
    source: NovaClient, target: tuple[NovaClient, Database, str], tmp_path: Path
) -> None:
    nova, _, _ = target
    await _export(source, tmp_path / "one")
    (tmp_path / "one/agents/clerk/instructions.md").write_text("Be kind.")
    await _import(nova, tmp_path / "one")
    assert (await nova.agents.get("clerk")).spec.instructions == "Be kind."
    versions = await nova.agents.versions("clerk")
    assert [version.spec.instructions for version in versions.items] == ["Be kind.", SPEC["instructions"]]


async def test_runs_that_have_not_ended_are_left_out(
    api: Api, worker: ManualWorker, source: NovaClient, target: tuple[NovaClient, Database, str], tmp_path: Path
) -> None:
    thread_id = await api.thread()
    await api.run(thread_id)
    await worker.play(thread_id)
    await api.run(thread_id)
    await worker.claim(thread_id)
    await api.run(thread_id)
    writer = await _export(source, tmp_path / "one")
    assert writer.open_runs == 2
    assert (writer.counts["runs"], writer.counts["turns"]) == (1, 1)
    nova, _, _ = target
    await _import(nova, tmp_path / "one")
    thread = await nova.threads.get(thread_id)
    assert (thread.turn_count, thread.active_run_id) == (1, None)
    messages = (await nova.threads.messages(thread_id)).items
    assert [message.role for message in messages] == ["user", "assistant"]


@pytest.mark.usefixtures("full")
async def test_an_archive_has_names_of_secrets_and_no_values(
    api: Api, source: NovaClient, database: Database, target: tuple[NovaClient, Database, str], tmp_path: Path
) -> None:
    await _insert(database, api.tenant.id, "secrets", name="TOKEN", ciphertext=b"hidden", description="For mail")
    await _export(source, tmp_path / "one")
    assert json.loads((tmp_path / "one/secrets.json").read_text()) == [{"name": "TOKEN", "description": "For mail"}]
    everything = b"".join(_files(tmp_path / "one").values())
    assert b"hidden" not in everything
    assert b"hidden".hex().encode() not in everything
    assert (await _import(target[0], tmp_path / "one")).secrets == ["TOKEN"]
    plain = await make_tenant(database, ("workspace", "agents", "runs"), api.tenant.id)
    async with NovaClient(api.url, plain.key) as nova:
        await _export(nova, tmp_path / "two")
    assert not (tmp_path / "two/secrets.json").exists()


@pytest.mark.parametrize("missing", ["workspace", "agents", "runs"])
async def test_all_three_scopes_are_needed(api: Api, database: Database, tmp_path: Path, missing: str) -> None:
    scopes = [scope for scope in ("workspace", "agents", "runs") if scope != missing]
    narrow = await make_tenant(database, scopes, api.tenant.id)
    async with NovaClient(api.url, narrow.key) as nova:
        with pytest.raises(Forbidden, match=missing):
            await _export(nova, tmp_path / "one")
        with pytest.raises(Forbidden, match=missing):
            await nova.archives.import_(_each([]))


@pytest.mark.usefixtures("full")
@proves("archive.whole")
async def test_existing_rows_refuse_the_archive_or_are_kept(
    source: NovaClient, target: tuple[NovaClient, Database, str], tmp_path: Path
) -> None:
    nova, database, tenant_id = target
    folder = tmp_path / "one"
    await _export(source, folder)
    await _insert(database, tenant_id, "memories", content="Mine")
    before = await _rows(database, tenant_id)
    with pytest.raises(Conflict, match=r"^Memory 'memories_id' is there already"):
        await _import(nova, folder)
    assert await _rows(database, tenant_id) == before
    merged = await _import(nova, folder, merge=True)
    assert merged.kept == {"memories": 1, "agents": 2, "agent_versions": 2}
    assert await database.fetchval("SELECT content FROM memories WHERE id = 'memories_id'") == "Mine"
    after = await _rows(database, tenant_id)
    again = await _import(nova, folder, merge=True)
    assert again.written == dict.fromkeys(again.kept, 0)
    assert await _rows(database, tenant_id) == after


@pytest.mark.usefixtures("full")
async def test_a_changed_default_agent_is_not_replaced(
    source: NovaClient, target: tuple[NovaClient, Database, str], tmp_path: Path
) -> None:
    nova, database, tenant_id = target
    await database.execute(
        "UPDATE agent_versions SET created_by = 'person' WHERE tenant_id = :tenant_id AND agent_id = 'nova'",
        tenant_id=tenant_id,
    )
    await _export(source, tmp_path / "one")
    with pytest.raises(Conflict, match=r"^Agent 'nova' is there already\. .*`--merge`"):
        await _import(nova, tmp_path / "one")


@pytest.mark.usefixtures("full")
async def test_another_tenant_of_the_same_database_cannot_take_the_ids(
    api: Api, source: NovaClient, other_tenant: Tenant, database: Database, tmp_path: Path
) -> None:
    await _export(source, tmp_path / "one")
    before = await _rows(database, other_tenant.id)
    async with NovaClient(api.url, other_tenant.key) as nova:
        for merge in (False, True):
            with pytest.raises((Conflict, InvalidInput)):
                await _import(nova, tmp_path / "one", merge=merge)
    assert await _rows(database, other_tenant.id) == before


def _archive(*rows: tuple[str, dict[str, Any]], end: bool = True) -> list[bytes]:
    lines = [("archive", {"format": 1, "next_task_id": 1}), *rows, *([("end", {"open_runs": 0})] if end else [])]
    return [json.dumps({"table": table, "row": row}).encode() for table, row in lines]


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize(
    "rows",
    [
        [small_row("threads"), small_row("turns", parent_turn_id="turn_1", depth=9)],
        [small_row("threads", head_turn_id="turn_1")],
        [small_row("messages", thread_id="thr_1", turn_id="turn_1", seq=99)],
        [small_row("threads"), small_row("turns"), small_row("messages", thread_id="thr_1")],
        [small_row("turns", thread_id="thr_1")],
        [small_row("threads", forked_from_thread_id="thr_1")],
    ],
)
@proves("archive.tenants")
async def test_an_archive_cannot_reach_into_another_tenant(
    api: Api, other_tenant: Tenant, database: Database, full: str, rows: list[tuple[str, dict[str, Any]]]
) -> None:
    before = await _rows(database, full)
    async with NovaClient(api.url, other_tenant.key) as nova:
        for merge in (False, True):
            with pytest.raises(InvalidInput):
                await nova.archives.import_(_each(_archive(*rows)), merge=merge)
    assert await _rows(database, full) == before


@pytest.mark.usefixtures("full")
@proves("archive.tenants")
async def test_another_tenant_s_row_is_refused_as_one_that_does_not_exist(api: Api, other_tenant: Tenant) -> None:
    theirs = {"threads": "thr_1", "runs": "run_1", "turns": "turn_1", "triggers": "trg_1"}
    found = references(archive_tables().values())
    assert len(found) > 20
    async with api.client(other_tenant.key) as client:
        for reference in found:
            above = [small_row(table) for table in ("tasks", *theirs) if table != reference.table]
            answers: set[str] = set()
            for value in (theirs[reference.parent], f"{theirs[reference.parent]}x"):
                for merge in ("false", "true"):
                    rows = _archive(*above, small_row(reference.table, **{reference.column: value}))
                    answer = await client.post(
                        "/v1/import",
                        params={"merge": merge},
                        content=b"\n".join(rows),
                        headers={"Content-Type": MEDIA_TYPE},
                    )
                    answers.add(str(answer.json().get("errors")).replace(f"'{value}'", "…"))
            (said,) = answers
            assert f"{reference.table}.{reference.column}: … is not of this archive." in said


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], "no end"),
        (_archive(end=False), "no end"),
        ([*_archive(), *_archive()], "Line 3.*after the end"),
        ([b'{"table": "archive", "row": {"format": 2, "next_task_id": 1}}'], "format 2"),
        ([b'{"table": "archive", "row": {"format": 1, "next_task_id": 99999999999}}'], "next_task_id"),
        ([b"nonsense"], "Line 1"),
        ([b"[]"], "no line of an archive"),
        ([_archive(small_row("memories"))[1]], "no line of an archive"),
        (_archive(("api_keys", {"id": "key_1"})), "no line of an archive"),
        (_archive(small_row("memories", tenant_id="ten_2")), "no column 'tenant_id'"),
        (_archive(small_row("memories", id="a b")), "no id"),
        (_archive(small_row("memories", id=7)), "no id"),
        (_archive(small_row("memories", content="x" * 2_001)), "2000"),
        (_archive(small_row("memories", content=None)), "memories"),
        (_archive(small_row("memories", created_at="yesterday")), "created_at: 'yesterday'"),
        (_archive(small_row("memories", created_at="infinity")), "created_at"),
        (_archive(small_row("memories", created_at="2026-01-01T00:00:00")), "created_at"),
        (_archive(small_row("memories", created_at=5)), "created_at"),
        (_archive(small_row("threads", fence=2**70)), "threads"),
        (_archive(small_row("threads", head_turn_id="turn_none")), "head_turn_id"),
        (_archive(small_row("threads"), small_row("turns", parent_turn_id="turn_9")), "circle"),
        (_archive(small_row("threads"), small_row("turns", status="running")), "only turns that ended"),
        (_archive(("runs", {"id": "run_9", "status": "queued"})), "only runs that ended"),
        (_archive(small_row("turns")), "turns"),
        (_archive(("agents", {"id": "Bad Id", "spec": {"name": "x"}})), "no id of an agent"),
        (_archive(("agents", {"id": "x", "version": 1, "spec": {"name": ""}})), "spec.name"),
        (
            _archive(("agents", {"id": "x", "version": 1, "spec": {"name": "x", "capabilities": {"fly": {}}}})),
            "no capability 'fly'",
        ),
        (_archive(("deliveries", {"id": "dlv_9", "target": "whk_1"})), "deliveries.target"),
        (_archive(small_row("run_waits", status="open")), "Line 2 .*run_waits.status: .*'open'"),
        (_archive(small_row("messages", content={"a": 1})), "Line 2 .*messages.content"),
        (_archive(small_row("triggers", kind="never")), "triggers.kind"),
        (_archive(small_row("triggers", schedule="61 * * * *")), "triggers.schedule"),
        (_archive(("deliveries", {"id": "dlv_9", "target": "user", "webhook_id": "whk_1"})), "deliveries.target"),
        (_archive(("skills", {"name": "pdf", "skill_md": "no front"})), "skill_md"),
        (_archive(("skills", {"name": "other", "skill_md": SKILL})), "SKILL.md calls"),
        (_archive(("skill_files", {"skill_name": "pdf", "path": "../x", "content": "\\x00"})), "path"),
        (_archive(("skill_files", {"skill_name": "pdf", "path": "x", "content": "zz"})), "hexadecimal"),
        ([b'{"table": "archive", "row": {"format": 1, "next_task_id": 1, "x": "\\u0000"}}'], "NUL|U\\+0000|character"),
    ],
)
@proves("archive.whole")
async def test_errors_in_an_archive_are_reported_and_nothing_is_imported(
    api: Api, nova: NovaClient, lines: list[bytes], says: str
) -> None:
    before = await _rows(api, api.tenant.id)
    with pytest.raises(NovaError, match=says) as refused:
        await nova.archives.import_(_each(lines))
    assert not isinstance(refused.value, Unavailable)
    assert await _rows(api, api.tenant.id) == before


async def test_the_small_rows_can_be_imported(source: NovaClient) -> None:
    rows = [small_row(kept.name) for kept in KEPT]
    names = [table for table, row in rows if row]
    result = await source.archives.import_(_each(_archive(*[(table, row) for table, row in rows if row])))
    assert len(names) > len(KEPT) / 2
    assert result.written == dict.fromkeys(names, 1)


_X: dict[str, Any] = {"name": "x"}


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([small_row("agents")], "'x': version 1 is not in agent_versions"),
        ([small_row("agents", version=2), small_row("agent_versions")], "version 2 is not in agent_versions"),
        (
            [small_row("agents"), small_row("agent_versions", spec={**_X, "trust": "unrestricted"})],
            "version 1 has another spec",
        ),
        (
            [small_row(table, spec={**_X, "skills": ["pdf"]}) for table in ("agents", "agent_versions")],
            "'x': spec.skills: there is no skill 'pdf'",
        ),
        (
            [small_row("skills"), small_row("skill_files"), small_row("skill_files", path="x/y")],
            "skill_files of 'pdf': .*x/y",
        ),
        (
            [small_row("skills"), *[small_row("skill_files", path=f"f{at}") for at in range(101)]],
            "at most 100 files",
        ),
    ],
)
async def test_agents_and_skills_are_checked_as_a_whole(
    api: Api, nova: NovaClient, rows: list[tuple[str, dict[str, Any]]], says: str
) -> None:
    before = await _rows(api, api.tenant.id)
    with pytest.raises(InvalidInput, match=says):
        await nova.archives.import_(_each(_archive(*rows)))
    assert await _rows(api, api.tenant.id) == before


async def test_an_agent_that_is_kept_in_a_merge_can_be_changed_afterwards(source: NovaClient) -> None:
    await source.archives.import_(_each(_archive(small_row("agents"), small_row("agent_versions"))))
    newer = {**_X, "instructions": "Be brief."}
    rows = [
        small_row("agents", version=2, spec=newer),
        small_row("agent_versions"),
        small_row("agent_versions", version=2, spec=newer),
    ]
    merged = await source.archives.import_(_each(_archive(*rows)), merge=True)
    assert merged.kept == {"agents": 1, "agent_versions": 2}
    changed = await source.agents.replace("x", AgentReplace(name="y"))
    assert (changed.version, changed.spec.name) == (2, "y")


async def test_an_archive_of_a_release_without_a_column_gets_its_default(source: NovaClient) -> None:
    _, trigger = small_row("triggers")
    del trigger["action"]
    await source.archives.import_(_each(_archive(("triggers", trigger))))
    assert (await source.triggers.get("trg_9")).action == "run"


async def test_another_media_type_is_refused(api: Api) -> None:
    answer = await api.http.post("/v1/import", json={})
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")
    answer = await api.http.post("/v1/import", content=b"", headers={"Content-Type": MEDIA_TYPE})
    assert answer.status_code == 422


async def test_an_archive_may_be_larger_than_a_body(
    source: NovaClient, target: tuple[NovaClient, Database, str]
) -> None:
    nova, database, tenant_id = target
    message = [{"type": "text", "text": "x" * 200_000}]
    rows = [small_row("messages", id=f"msg_{at}", seq=at, content=message) for at in range(40)]
    await nova.archives.import_(_each(_archive(small_row("threads"), small_row("turns"), *rows)))
    assert (
        await database.fetchval("SELECT count(*) FROM messages WHERE tenant_id = :tenant_id", tenant_id=tenant_id) == 40
    )


async def test_an_archive_may_arrive_slowly(
    api: Api, source: NovaClient, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nova_workers.ledger.sessions._SETTLE", "SET idle_in_transaction_session_timeout = '6s'")
    monkeypatch.setattr("nova_workers.ledger.keepalive._EVERY_S", 0.5)
    begin, *others = _archive(small_row("memories"))

    async def is_importing() -> bool:
        free = "SELECT id FROM tenants WHERE id = :id FOR UPDATE SKIP LOCKED"
        return await database.fetchval(free, id=api.tenant.id) is None

    async def slow() -> AsyncGenerator[bytes]:
        yield begin
        await until(is_importing)
        await stays(is_importing, for_s=7)
        for line in others:
            yield line

    result = await source.archives.import_(slow())
    assert result.written == {"memories": 1}
    assert (await api.http.get("/v1/memories")).json()["items"][0]["id"] == "mem_9"


async def test_a_sender_that_disconnects_leaves_nothing(api: Api, source: NovaClient, database: Database) -> None:
    async def cut() -> AsyncGenerator[bytes]:
        for line in _archive(small_row("memories"), end=False):
            yield line
        raise ConnectionError("gone")

    with pytest.raises((ConnectionError, NovaError)):
        await source.archives.import_(cut())
    assert (
        await database.fetchval("SELECT count(*) FROM memories WHERE tenant_id = :tenant_id", tenant_id=api.tenant.id)
        == 0
    )


async def test_the_next_archive_may_begin_once_the_client_has_the_end_of_an_export() -> None:
    permits, held, ends = ArchivePermits(1), ExitStack(), list[bool]()
    held.enter_context(permits.hold("ten_1"))

    async def lines() -> AsyncGenerator[bytes]:
        yield b"row\n" * 50_000
        yield b"the end\n"

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        if b"the end" in message.get("body", b""):
            with permits.hold("ten_1"):
                ends.append(not message["more_body"])

    response = ArchiveResponse(b"the first\n", lines(), held=held, settings=ApiSettings())
    await response({"type": "http", "path": "/v1/export"}, receive, send)
    assert ends == [True]


async def test_an_export_whose_answer_cannot_begin_ends_its_snapshot_and_its_permit() -> None:
    permits, held, ended = ArchivePermits(1), ExitStack(), list[str]()
    held.enter_context(permits.hold("ten_1"))

    async def lines() -> AsyncGenerator[bytes]:
        try:
            yield b"the first\n"
            yield b"the end\n"
        finally:
            ended.append("snapshot")

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        raise OSError(message["type"])

    rest = lines()
    response = ArchiveResponse(await anext(rest), rest, held=held, settings=ApiSettings())
    with pytest.raises(OSError, match=r"http\.response\.start"):
        await response({"type": "http", "path": "/v1/export"}, receive, send)
    assert ended == ["snapshot"]
    with permits.hold("ten_1"):
        pass
