"""The audit log: Postgres records each change of a key or an agent, and nothing of the fleet's own."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace

import asyncpg
import pytest
from dirty_equals import IsPartialDataclass
from prometheus_client import CollectorRegistry

from models import migrate
from models.rights.audit import AUDITED
from models.rights.audit_chain import AUDIT_ROLE
from models.rights.logins import ensure_login
from models.rights.row_security import FLEET_ROLE, TENANT_ROLE
from models.tables import metadata
from nova_workers.base.clock import SystemClock
from nova_workers.base.config import RetentionSettings
from nova_workers.base.observability.metrics import Metrics
from nova_workers.cli.operations.database_checks import check_database
from nova_workers.client.audit_chain import CheckedChain, check_chain
from nova_workers.contracts.http.overview.audit import AuditEventView
from nova_workers.domain.agents.sql.records import seed_defaults
from nova_workers.domain.audit.rules import AuditSeals
from nova_workers.domain.audit.sql.listing import AuditFilter, get_audit_chain, read_audit
from nova_workers.domain.tenants.sql.settings import ensure_tenant
from nova_workers.domain.upkeep.rules.retention import Retention
from nova_workers.ledger.auditing import Actor, acting_as
from nova_workers.ledger.database import Database, PostgresDatabase
from nova_workers.ledger.visibility import all_tenants, see_tenant
from tests.requirements import proves

ONE, TWO = "ten_one", "ten_two"
KEY = Actor("key", "key_1", ONE, name="of the team", address="192.0.2.7", trace_id="4bf92f3577b34da6a3ce929d0e0e4736")
AGENT = Actor("agent", "nova", ONE, run_id="run_1")

NOT_AUDITED = {
    "agent_versions": "a version comes with the change of its agent",
    "skill_files": "come with the change of their skill",
    **dict.fromkeys(("task_steps", "task_resources", "task_changes"), "each change counts the revision of its task"),
    **dict.fromkeys(("trigger_firings", "deliveries"), "what the fleet did by itself, or its state"),
    **dict.fromkeys(
        (
            *("thread_heads", "turns", "messages", "tool_calls", "compactions", "usage", "engine_sessions", "effects"),
            *("message_texts", "embeddings", "run_attempts", "idempotency_keys", "changes"),
            *("model_calls", "request_parts"),
        ),
        "the record of a conversation and its runs themselves",
    ),
    "run_samples": "scores of a sampling, which is audited",
    "evaluation_trials": "the record of an evaluation itself",
    "evaluation_judgements": "the record of an evaluation itself",
    "dataset_examples": "a change of them raises the version of their dataset",
    "run_lists": "how a person looks at runs, which changes nothing for others",
    "run_waits": "their answers are recorded by a trigger of their own",
    **dict.fromkeys(("orchestration_agents", "orchestration_messages"), "the record of an orchestration itself"),
    **dict.fromkeys(("work_orders", "work_order_keys", "work_order_parts"), "work_order_trail records them"),
    "work_order_trail": "append-only itself",
    **dict.fromkeys(
        ("leases", "upkeep_cursors", "model_rankings", "model_judgements", "worker_installs", "worker_sessions"),
        "bookkeeping",
    ),
    "worker_drains": "orders are recorded as acts, with the worker as their target",
    **dict.fromkeys(("audit_events", "audit_chains"), "the log itself"),
    "project_items": "what an apply writes of agents, skills and triggers is recorded as theirs",
    "people": "their sign-ins are recorded as acts",
    "sign_ins": "its beginning and its end are recorded as acts",
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
    walled = PostgresDatabase(database_url, pool_size=3, access="tenants")
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
        "actor_name": "of the team",
        "address": "192.0.2.7",
        "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
        "run_id": None,
        "action": "note.created",
        "target_kind": "note",
        "target_id": "note_1",
        "fields": [],
        "arguments_hash": None,
        "times": 1,
        "seq": None,
        "hash": None,
    }
    assert "private words" not in str(event)


@proves("audit.who")
async def test_sessions_without_an_actor_record_nothing_also_after_one_with_an_actor(
    walled: Database, database: Database, database_url: str
) -> None:
    fleet = PostgresDatabase(database_url, pool_size=1, access="fleet")
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
        "DELETE FROM audit_events",
        "UPDATE audit_chains SET hash = ''",
        "INSERT INTO audit_chains (tenant_id) VALUES ('ten_one')",
        "DELETE FROM audit_chains",
        "SELECT delete_audit('ten_one', 0, 100)",
        "SELECT delete_audit(NULL, 0, 100)",
        "ALTER TABLE notes DISABLE TRIGGER audit",
        "DROP TRIGGER audit ON notes",
        "CREATE OR REPLACE FUNCTION record_audit() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "SET session_replication_role = replica",
    ]
    if role == TENANT_ROLE:
        statements += ["SELECT seal_audit(1)", "SELECT delete_audit(NULL, 30, 1)"]
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


async def _seal(fleet: Database) -> int:
    # As upkeep runs: bound to no tenant.
    with all_tenants():
        return await AuditSeals(fleet).tick()


_OWNER = "SELECT relowner::regrole::text FROM pg_class WHERE relname = 'audit_events'"


async def _checked(
    database: Database, kept: tuple[int, str] | None = None, tenant_id: str = ONE
) -> tuple[list[AuditEventView], CheckedChain]:
    """Return the records of a tenant in the order of the chain, and what a reader finds."""
    async with database.snapshot() as snapshot:
        chain = await get_audit_chain(snapshot, tenant_id)
        records = [record async for record in read_audit(snapshot, tenant_id, AuditFilter())]

    async def read() -> AsyncIterator[AuditEventView]:
        for record in records:
            yield record

    return records, await check_chain(chain, read(), kept)


@pytest.fixture
async def fleet(database_url: str) -> AsyncIterator[Database]:
    """A pool as workers have it."""
    fleet = PostgresDatabase(database_url, pool_size=2, access="fleet")
    yield fleet
    await fleet.close()


@proves("audit.chain")
async def test_records_are_chained_in_the_order_in_which_they_were_committed(
    walled: Database, database: Database, fleet: Database
) -> None:
    with acting_as(KEY):
        async with walled.transaction() as late:
            await late.execute(NOTE, tenant_id=ONE)
            await walled.execute("UPDATE tenants SET name = 'Name \u2028 \U0001f600 \\ \"' || chr(7) || chr(127)")
            assert await _seal(fleet) == 1
        # The one that was committed last has the first id.
        assert await _seal(fleet) == 1
        await walled.execute("DELETE FROM notes")
    assert await _seal(fleet) == 1
    assert await _seal(fleet) == 0
    with acting_as(replace(KEY, name='\u00fcber \U0001f600 \\ " \x7f\x07\n')):
        await walled.execute("UPDATE tenants SET weight = 7")
    records, checked = await _checked(database)
    assert [(r.seq, r.action) for r in records] == [
        (1, "tenant.updated"),
        (2, "note.created"),
        (3, "note.deleted"),
        (None, "tenant.updated"),
    ]
    assert records[1].id < records[0].id
    assert checked == IsPartialDataclass(records=3, unsealed=1, seq=3, problem=None)
    assert await _seal(fleet) == 1
    assert (await _checked(database))[1] == IsPartialDataclass(records=4, unsealed=0, problem=None)


@proves("audit.chain")
async def test_ticks_at_once_seal_each_record_once(walled: Database, database: Database, fleet: Database) -> None:
    with acting_as(KEY):
        await walled.execute(
            "INSERT INTO notes (id, tenant_id, agent_id, title) SELECT 'note_' || n, :own, 'nova', 't'"
            "  FROM generate_series(1, 1100) n",
            own=ONE,
        )
    await asyncio.gather(_seal(fleet), _seal(fleet))
    await _seal(fleet)
    _, checked = await _checked(database)
    assert (checked.records, checked.unsealed, checked.seq, checked.problem) == (1100, 0, 1100, None)


@proves("audit.verify")
async def test_the_first_record_that_was_changed_is_named(
    walled: Database, database: Database, database_url: str, fleet: Database
) -> None:
    with acting_as(KEY):
        for weight in range(5, 11):
            await walled.execute(f"UPDATE tenants SET weight = {weight}")
    await _seal(fleet)
    records, before = await _checked(database)
    assert before.problem is None
    kept = (3, str(records[2].hash))
    assert (await _checked(database, kept))[1].problem is None
    again = """INSERT INTO audit_events
        SELECT (jsonb_populate_record(e, '{"id": "aud_x", "seq": 7}')).* FROM audit_events e WHERE seq = 6"""
    for tampering, found in {
        "UPDATE audit_events SET actor_id = 'key_2' WHERE seq = 4": r"^Record 4 \(aud_\w+, tenant.updated of 'ten_one'",
        "UPDATE audit_events SET fields = '{}', hash = NULL WHERE seq = 2": "^Record 2 is missing: after 1 comes 3",
        "DELETE FROM audit_events WHERE seq = 1": "^Record 1 is missing: after 0 comes 2",
        "DELETE FROM audit_events WHERE seq = 6": "^The chain ends with record 5, and the log had 6",
        "UPDATE audit_events SET at = at + interval '1 microsecond' WHERE seq = 5": "^Record 5 .*was changed",
        "UPDATE audit_chains SET hash = sha256(hash)": "^Record 6 is not the one that the head",
        again.replace("(e).*", '(jsonb_populate_record(e, \'{"id": "aud_x", "seq": 7}\')).*'): "^Record 7 .*not fit",
        # All of it written anew, as the owner can.
        "UPDATE audit_events SET seq = NULL, actor_id = 'key_2'; DELETE FROM audit_chains;"
        " SELECT seal_audit(9)": "^Record 3 is not the one whose hash was kept elsewhere",
    }.items():
        connection = await asyncpg.connect(database_url)
        await connection.execute("CREATE TEMP TABLE kept AS TABLE audit_events")
        await connection.execute("CREATE TEMP TABLE chains AS TABLE audit_chains")
        await connection.execute(tampering)
        _, checked = await _checked(database, kept)
        assert checked.problem is not None, tampering
        assert re.search(found, checked.problem), (tampering, checked.problem)
        await connection.execute(
            "DELETE FROM audit_events; INSERT INTO audit_events TABLE kept;"
            " DELETE FROM audit_chains; INSERT INTO audit_chains TABLE chains"
        )
        await connection.close()
    assert (await _checked(database, kept))[1].problem is None


@proves("audit.retention")
async def test_workers_delete_records_that_are_too_old_and_the_chain_stays_whole(
    walled: Database, database: Database, fleet: Database
) -> None:
    with acting_as(KEY):
        for weight in range(5, 9):
            await walled.execute(f"UPDATE tenants SET weight = {weight}")
    # The third is older than the second: its transaction was long. It stays until all before it are due.
    await database.execute("UPDATE audit_events SET at = now() - interval '31 days'")
    await database.execute(
        "UPDATE audit_events SET at = now() WHERE id = (SELECT id FROM audit_events ORDER BY id OFFSET 2 LIMIT 1)"
    )
    settings = RetentionSettings(audit_days=30, busy=1)
    with all_tenants():
        retention = Retention(fleet, settings, Metrics(CollectorRegistry()), clock=SystemClock())
        assert await retention.tick() == {}, "not sealed yet"
        await _seal(fleet)
        kept, _ = await _checked(database)
        assert await retention.tick() == {"audit_events": 2}
        await _seal(fleet)
    records, checked = await _checked(database, (2, str(kept[1].hash)))
    assert checked == IsPartialDataclass(records=3, seq=5, problem=None)
    assert (records[-1].action, records[-1].target_id, records[-1].actor_id) == ("audit.deleted", "2", "retention")
    assert (records[-1].arguments_hash, records[-1].times) == (kept[1].hash, 2)
    # One who writes the chain anew chooses its anchor, so that a head before it proves nothing.
    _, unproven = await _checked(database, (1, str(kept[0].hash)))
    assert "Record 1, whose hash was kept elsewhere, was deleted, as all up to 2 were" in str(unproven.problem)
    # Without its anchor the rest would fit nothing.
    await database.execute("UPDATE audit_chains SET anchor_hash = sha256(anchor_hash)")
    assert "Record 3 " in str((await _checked(database))[1].problem)


@proves("audit.owner")
async def test_a_role_of_its_own_owns_the_log_and_the_fleets_user_is_no_member(
    database: Database, database_url: str
) -> None:
    user_url = database_url.replace("//postgres@", "//nova_reader:of-the-app@")
    try:
        await ensure_login(database_url, user_url)
        connection = await asyncpg.connect(user_url)
        for statement in (
            "DELETE FROM audit_events",
            f"SET ROLE {AUDIT_ROLE}",
            "ALTER TABLE audit_events OWNER TO nova_reader",
            "DROP FUNCTION seal_audit",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(statement)
        await connection.close()
        [found] = [one for one in await check_database(user_url) if one.name == "audit log"]
        assert (found.state, found.detail) == ("ok", "'nova_reader' reads it, and 'nova_audit' owns it")
        [found] = [one for one in await check_database(database_url) if one.name == "audit log"]
        assert (found.state, found.detail) == ("warn", "'postgres' is a superuser, and so can change it")
    finally:
        await database.execute("DROP OWNED BY nova_reader")
        await database.execute("DROP ROLE nova_reader")


@proves("audit.owner")
async def test_the_log_works_where_one_role_owns_everything(
    database: Database, database_url: str, fleet: PostgresDatabase
) -> None:
    name = await database.fetchval("SELECT current_database()")
    await database.execute(f"CREATE ROLE nova_one LOGIN PASSWORD 'of-one' IN ROLE {FLEET_ROLE}")
    owner_url = database_url.replace("//postgres@", "//nova_one:of-one@")
    try:
        await database.execute(f'ALTER DATABASE "{name}" OWNER TO nova_one')
        tables = ("alembic_version", "tenants", "audit_events", "audit_chains")
        functions = ("record_audit", "record_answer", "record_act", "seal_audit", "delete_audit")
        objects = [*(f"TABLE {table}" for table in tables), *(f"FUNCTION {function}" for function in functions)]
        for one in objects:
            await database.execute(f"ALTER {one} OWNER TO nova_one")
        # The user may neither make the role nor take it on: the log stays, works, and the doctor reports it.
        await migrate.upgrade(owner_url)
        assert await database.fetchval(_OWNER) == "nova_one"
        async with database.transaction() as connection:
            await ensure_tenant(connection, ONE, ONE)
        with acting_as(KEY):
            await fleet.execute("UPDATE tenants SET weight = 7")
        await _seal(fleet)
        assert (await _checked(database))[1] == IsPartialDataclass(records=1, problem=None)
        [found] = [one for one in await check_database(owner_url) if one.name == "audit log"]
        assert (found.state, found.detail) == ("warn", "'nova_one' owns the tables, and so can change it")
        await database.execute(f"GRANT {AUDIT_ROLE} TO nova_one")
        await migrate.upgrade(owner_url)
        assert await database.fetchval(_OWNER) == AUDIT_ROLE
        with acting_as(KEY):
            await fleet.execute("UPDATE tenants SET weight = 8")
        await _seal(fleet)
        await database.execute("UPDATE tenants SET ending_at = now()")
        assert await fleet.fetchval("SELECT delete_audit('ten_one', NULL, 100)") == 2
        assert (await _checked(database))[1] == IsPartialDataclass(records=0, seq=0, problem=None)
    finally:
        await fleet.close()
        await database.execute("REASSIGN OWNED BY nova_one TO postgres")
        await database.execute("DROP OWNED BY nova_one")
        await database.execute("DROP ROLE nova_one")
