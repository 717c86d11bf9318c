"""The audit log: Postgres records each change of a key or an agent, and nothing of the fleet's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress

import asyncpg
import pytest
from prometheus_client import CollectorRegistry

from models import metadata
from models.rights.audit import AUDITED
from models.rights.row_security import FLEET_ROLE, TENANT_ROLE
from nova_workers.clock import SystemClock
from nova_workers.config import RetentionSettings
from nova_workers.ledger.auditing import Actor, acting_as
from nova_workers.ledger.database import Database
from nova_workers.ledger.tenants.settings import ensure_tenant
from nova_workers.ledger.visibility import all_tenants, see_tenant
from nova_workers.ledger.workspace.agents import seed_defaults
from nova_workers.observability.metrics import Metrics
from nova_workers.upkeep.retention import Retention
from tests.requirements import proves

ONE, TWO = "ten_one", "ten_two"
KEY = Actor("key", "key_1", ONE, address="192.0.2.7", trace_id="4bf92f3577b34da6a3ce929d0e0e4736")
AGENT = Actor("agent", "nova", ONE, run_id="run_1")

NOT_AUDITED = {
    "agent_versions": "a version comes with the change of its agent",
    "skill_files": "come with the change of their skill",
    **dict.fromkeys(("task_steps", "task_resources", "task_changes"), "each change counts the revision of its task"),
    **dict.fromkeys(("trigger_firings", "deliveries"), "what the fleet did by itself, or its state"),
    **dict.fromkeys(
        (
            *("thread_heads", "turns", "messages", "tool_calls", "compactions", "usage", "engine_sessions", "effects"),
            *("message_texts", "embeddings", "run_waits", "run_attempts", "idempotency_keys"),
        ),
        "the record of a conversation and its runs themselves",
    ),
    **dict.fromkeys(("orchestration_agents", "orchestration_messages"), "the record of an orchestration itself"),
    **dict.fromkeys(("work_orders", "work_order_keys", "work_order_parts"), "work_order_trail records them"),
    "work_order_trail": "append-only itself",
    **dict.fromkeys(
        ("leases", "upkeep_cursors", "model_rankings", "model_judgements", "worker_sessions"), "bookkeeping"
    ),
    "audit_events": "the log itself",
}

EVENTS = "SELECT * FROM audit_events ORDER BY id"
NOTE = "INSERT INTO notes (id, tenant_id, agent_id, title) VALUES ('note_1', :tenant_id, 'nova', 'private words')"


@pytest.fixture
async def walled(database: Database, database_url: str) -> AsyncIterator[Database]:
    """A pool as the API has it, on a database with two tenants, bound to the first."""
    async with database.transaction() as connection:
        for tenant_id in (ONE, TWO):
            await ensure_tenant(connection, tenant_id, tenant_id)
            await seed_defaults(connection, tenant_id)
    walled = Database(database_url, pool_size=2, access="tenants")
    see_tenant(ONE)
    yield walled
    await walled.close()


async def _recorded(database: Database) -> list[tuple[str, str, list[str]]]:
    """Return action, target and fields of all records, and forget them."""
    rows = await database.fetch(EVENTS)
    await database.execute("DELETE FROM audit_events")
    return [(row["action"], row["target_id"], row["fields"]) for row in rows]


@proves("audit.every-thing")
def test_each_table_is_audited_or_named_with_a_reason() -> None:
    assert AUDITED.keys().isdisjoint(NOT_AUDITED)
    assert AUDITED.keys() | NOT_AUDITED.keys() == metadata.tables.keys()


@proves("audit.who")
async def test_a_change_is_recorded_with_its_actor_in_its_own_transaction(walled: Database, database: Database) -> None:
    with acting_as(KEY):
        await walled.execute(NOTE, tenant_id=ONE)
        with suppress(LookupError):
            async with walled.transaction() as connection:
                await connection.execute("DELETE FROM notes")
                raise LookupError
    [event] = await database.fetch(EVENTS)
    assert dict(event) | {"id": "", "at": None} == {
        "id": "",
        "tenant_id": ONE,
        "at": None,
        "actor_kind": "key",
        "actor_id": "key_1",
        "address": "192.0.2.7",
        "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
        "run_id": None,
        "action": "note.created",
        "target_kind": "note",
        "target_id": "note_1",
        "fields": [],
    }
    assert "private words" not in str(event)


@proves("audit.who")
async def test_sessions_without_an_actor_record_nothing_also_after_one_with_an_actor(
    walled: Database, database: Database, database_url: str
) -> None:
    fleet = Database(database_url, pool_size=1, access="fleet")
    with acting_as(AGENT):
        await fleet.execute(NOTE, tenant_id=ONE)
    [event] = await database.fetch(EVENTS)
    assert (event["actor_kind"], event["actor_id"], event["run_id"]) == ("agent", "nova", "run_1")
    await fleet.execute("UPDATE notes SET title = 'by the fleet'")
    await walled.execute("UPDATE notes SET title = 'by nothing'")
    assert await database.fetchval("SELECT count(*) FROM audit_events") == 1
    await fleet.close()


@proves("audit.who")
async def test_an_update_names_what_changed_and_bookkeeping_alone_is_not_recorded(
    walled: Database, database: Database
) -> None:
    with acting_as(KEY):
        await walled.execute(
            "UPDATE agents SET version = 2, updated_at = now(),"
            """ spec = spec || '{"trust": "unrestricted", "model": "opus"}' WHERE id = 'nova'"""
        )
        await walled.execute("UPDATE agents SET version = 3, updated_at = now()")
        await walled.execute("""UPDATE agents SET version = 4, spec = spec || '{"temperature": null}'""")
        await walled.execute("UPDATE agents SET version = 5, spec = spec - 'temperature'")
        await walled.execute("UPDATE agents SET deleted_at = now() WHERE id = 'nova'")
        await walled.execute("UPDATE tenants SET next_task_id = 7")
        await walled.execute("UPDATE tenants SET name = 'New', weight = 2")
    assert await _recorded(database) == [
        ("agent.updated", "nova", ["spec.model", "spec.trust"]),
        ("agent.deleted", "nova", []),
        ("tenant.updated", ONE, ["name", "weight"]),
    ]


@proves("audit.who")
async def test_a_pause_of_the_fleet_is_in_the_log_of_its_actor(walled: Database, database: Database) -> None:
    with all_tenants(), acting_as(KEY):
        await walled.execute("INSERT INTO switches (scope, tenant_id, target) VALUES ('fleet', '', '')")
        await walled.execute("DELETE FROM switches")
    rows = await database.fetch(EVENTS)
    assert [(row["tenant_id"], row["action"], row["target_id"]) for row in rows] == [
        (ONE, "pause.created", "fleet/"),
        (ONE, "pause.deleted", "fleet/"),
    ]


async def test_the_work_of_a_run_on_its_thread_and_itself_calls_no_trigger(
    walled: Database, database: Database
) -> None:
    with acting_as(KEY):
        await walled.execute("INSERT INTO threads (id, tenant_id, agent_id) VALUES ('thr_1', :own, 'nova')", own=ONE)
        await walled.execute("UPDATE threads SET fence = fence + 1, turn_count = 1, updated_at = now()")
        assert await _recorded(database) == []
        await walled.execute("UPDATE threads SET title = 'New'")
        await walled.execute("UPDATE threads SET deleted_at = now()")
    assert await _recorded(database) == [("thread.updated", "thr_1", ["title"]), ("thread.deleted", "thr_1", [])]


@proves("audit.append-only")
@pytest.mark.parametrize("role", [FLEET_ROLE, TENANT_ROLE])
async def test_no_process_of_the_fleet_can_add_or_change_a_record(
    walled: Database, database_url: str, role: str
) -> None:
    with acting_as(KEY):
        await walled.execute(NOTE, tenant_id=ONE)
    connection = await asyncpg.connect(database_url)
    await connection.execute(f"SET ROLE {role}")
    await connection.execute("SELECT set_config('nova.tenant', 'ten_one', false)")
    statements = [
        "UPDATE audit_events SET actor_id = 'other'",
        "INSERT INTO audit_events (tenant_id, actor_kind, actor_id, action, target_kind, target_id)"
        " VALUES ('ten_one', 'key', 'other', 'note.created', 'note', 'note_2')",
        "TRUNCATE audit_events",
        "ALTER TABLE notes DISABLE TRIGGER audit",
        "DROP TRIGGER audit ON notes",
        "CREATE OR REPLACE FUNCTION record_audit() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "SET session_replication_role = replica",
    ]
    if role == TENANT_ROLE:
        statements.append("DELETE FROM audit_events")
    for statement in statements:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(statement)
    assert await connection.fetchval("SELECT count(*) FROM audit_events") == 1
    await connection.close()


@proves("audit.append-only")
async def test_a_tenant_reads_its_own_records_only(walled: Database) -> None:
    with acting_as(KEY):
        await walled.execute(NOTE, tenant_id=ONE)
    assert await walled.fetchval("SELECT count(*) FROM audit_events") == 1
    see_tenant(TWO)
    assert await walled.fetchval("SELECT count(*) FROM audit_events") == 0


@proves("audit.retention")
async def test_workers_delete_records_that_are_too_old(walled: Database, database: Database, database_url: str) -> None:
    with acting_as(KEY):
        await walled.execute(NOTE, tenant_id=ONE)
        await walled.execute("DELETE FROM notes")
    await database.execute("UPDATE audit_events SET at = now() - interval '31 days' WHERE action = 'note.created'")
    worker = Database(database_url, pool_size=1, access="fleet")
    settings = RetentionSettings(audit_days=30, busy=1)
    # As upkeep runs: bound to no tenant.
    with all_tenants():
        deleted = await Retention(worker, settings, Metrics(CollectorRegistry()), clock=SystemClock()).tick()
    assert deleted == {"audit_events": 1}
    assert [row["action"] for row in await database.fetch(EVENTS)] == ["note.deleted"]
    await worker.close()
