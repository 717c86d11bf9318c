"""Through PgBouncer in transaction mode: clients share sessions with Postgres, and no tenant stays in one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from models import migrate
from nova_workers.base.config import Settings
from nova_workers.base.errors import ConfigurationError
from nova_workers.bootstrap.connections import connect_session
from nova_workers.cli.backups.dump import back_up
from nova_workers.cli.operations.database_checks import check_database
from nova_workers.client.client import NovaClient
from nova_workers.contracts.http.wire import StatelessRunCreate
from nova_workers.domain.agents.sql.records import seed_defaults
from nova_workers.domain.tenants.sql.settings import ensure_tenant
from nova_workers.ledger.auditing import Actor, acting_as
from nova_workers.ledger.database import Connection, Database, PostgresDatabase
from nova_workers.ledger.visibility import all_tenants, one_tenant
from tests.requirements import proves
from tests.support.processes.fleet import Fleet, add_api_key, fleet_env
from tests.support.processes.pgbouncer import own_pgbouncer, why_no_pgbouncer
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(why_no_pgbouncer() is not None, reason=str(why_no_pgbouncer()))

ONE, TWO = "ten_one", "ten_two"
_ROUNDS = 10
_SEEN = "SELECT array_agg(DISTINCT tenant_id) FROM agents"
_ACTOR = "SELECT current_setting('nova.actor')::jsonb ->> 'tenant_id'"
_ADD = "INSERT INTO memories (id, tenant_id, agent_id, content) VALUES (:id, :tenant_id, 'nova', 'a fact')"
_LEFT = """
SELECT current_user = session_user AS own_role, coalesce(current_setting('nova.tenant', true), '') AS tenant,
       coalesce(current_setting('nova.actor', true), '') AS actor,
       (SELECT count(*) FROM pg_prepared_statements WHERE name <> '') AS prepared
"""
_SHORT_LEASES = {
    "NOVA_RUNS__LEASE_TTL_S": "4",
    "NOVA_RUNS__LEASE_RENEW_S": "1",
    "NOVA_RUNS__RERING_AFTER_S": "2",
    "NOVA_RUNS__RECONCILE_EVERY_S": "1",
}
_NOTE = {"tool": {"name": "note_create", "input": {"title": "T", "content": "C"}}}
_WRITES = json.dumps({"script": [_NOTE, {"say": "Noted."}]})
_LONG = json.dumps({"script": [_NOTE, {"sleep_s": 3}, {"say": "The end."}]})


@pytest.fixture
def one_session(database_url: str) -> Iterator[str]:
    """The URL of a PgBouncer whose clients all share one session."""
    with own_pgbouncer(database_url, pool_size=1) as url:
        yield url


@proves("tenants.pooler")
async def test_two_tenants_that_share_one_session_never_see_or_change_rows_of_each_other(
    database: Database, one_session: str
) -> None:
    async with database.transaction() as connection:
        for tenant_id in (ONE, TWO):
            await ensure_tenant(connection, tenant_id, tenant_id)
            await seed_defaults(connection, tenant_id)
    walled = PostgresDatabase(one_session, pool_size=4, access="tenants", reserved=1)

    async def check(connection: Connection, tenant_id: str) -> None:
        assert await connection.fetchval(_SEEN) == [tenant_id]
        assert await connection.fetchval(_ACTOR) == tenant_id

    async def check_nothing_is_left() -> None:
        """Take the session as a client that binds nothing, while it is warm."""
        raw = await asyncpg.connect(one_session, statement_cache_size=0)
        async with raw.transaction():
            assert tuple(await raw.fetchrow(_LEFT) or ()) == (True, "", "", 0)
        await raw.close()

    async def interrupt() -> None:
        """End in the middle of a statement of a transaction."""
        async with asyncio.timeout(0.02), walled.transaction() as connection:
            await connection.execute("SELECT pg_sleep(5)")

    async def work(tenant_id: str, other: str) -> None:
        with one_tenant(tenant_id), acting_as(Actor("key", "key_1", tenant_id)):
            for number in range(_ROUNDS):
                async with walled.connection() as connection:
                    await check(connection, tenant_id)
                async with walled.transaction() as connection:
                    await check(connection, tenant_id)
                    await connection.execute(_ADD, id=f"mem_{tenant_id}_{number}", tenant_id=tenant_id)
                async with walled.snapshot() as snapshot:
                    rows = snapshot.rows("SELECT tenant_id FROM memories WHERE id <> :none", at_once=2, none="")
                    assert [row["tenant_id"] async for row in rows] == [tenant_id] * (number + 1)
                with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
                    await walled.execute(_ADD, id="mem_planted", tenant_id=other)
                await check_nothing_is_left()
                with pytest.raises(TimeoutError):
                    await interrupt()

    await asyncio.gather(work(ONE, TWO), work(TWO, ONE))
    with all_tenants():
        assert sorted(await walled.fetchval(_SEEN)) == sorted(await database.fetchval(_SEEN))
    await walled.close()
    assert await database.fetchval("SELECT count(*) FROM memories") == 2 * _ROUNDS


@proves("tenants.pooler")
async def test_what_needs_a_session_of_its_own_says_which_setting_leads_around_the_pooler(
    database_url: str, one_session: str, tmp_path: Path
) -> None:
    with pytest.raises(migrate.PoolerBetween, match="NOVA_DATABASE_OWNER_URL"):
        await migrate.upgrade(one_session)
    with pytest.raises(ConfigurationError, match="NOVA_DATABASE_OWNER_URL"):
        await back_up(one_session, tmp_path / "backup")
    session = connect_session(one_session)
    assert await session.is_shared() is True
    await session.close()
    # What only reads works: twice, since the server's session remains.
    for _ in range(2):
        assert await migrate.current(one_session) == migrate.head()
        found = await check_database(one_session)
        # One user is owner and process here, which is what the check of the audit log warns of.
        assert {finding.name for finding in found if finding.state != "ok"} <= {"audit log"}, found


@proves("tenants.pooler")
@pytest.mark.fleet
async def test_a_fleet_behind_a_pooler_answers_writes_and_recovers_by_leases(
    settings: Settings, database: Database
) -> None:
    with own_pgbouncer(settings.require_database_url(), pool_size=6) as pooled:
        env = {**fleet_env(settings), **_SHORT_LEASES, "NOVA_DATABASE_URL": pooled}
        async with Fleet(env, workers=1, beat=True) as fleet:
            events = [event async for _, event in fleet.client.runs.stream(StatelessRunCreate(message=_WRITES))]
            assert (events[0].type, events[-1].type) == ("stream_start", "stream_end")
            key, _ = await add_api_key(pooled)
            async with NovaClient(fleet.api_url, key) as stranger:
                assert [len((await client.notes.list()).items) for client in (fleet.client, stranger)] == [1, 0]

            run = await fleet.client.runs.create(StatelessRunCreate(message=_LONG))
            steps = "SELECT count(*) FROM turns WHERE run_id = :run_id AND steps >= 1"
            await until(lambda: database.fetchval(steps, run_id=run.id), "the first step")
            fleet.workers[0].kill()
            await fleet.start_worker()
            ended = await fleet.client.runs.result(run.id, timeout_s=60)
            assert (ended.status, ended.text) == ("succeeded", "The end.")
            assert len((await fleet.client.notes.list()).items) == 2, "the call before the kill is not repeated"
            assert await database.fetchval("SELECT count(*) FROM worker_sessions") == 0
