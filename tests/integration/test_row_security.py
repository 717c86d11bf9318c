"""Row-level security: every table with a tenant has it, and the roles of the fleet's processes may change rows only."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import asyncpg
import pytest
from mcp import Client

from models import migrate
from models.rights.logins import ensure_login, scram_verifier
from models.rights.row_security import FLEET_ROLE, TENANT_ROLE
from models.tables import metadata
from nova_workers.base.errors import Unavailable
from nova_workers.devstack.first_start import make_first_key
from nova_workers.domain.agents.sql.records import seed_defaults
from nova_workers.domain.capabilities.rules.seam import CapabilityContext, DeclaredServer, ToolDeclaration, ToolInput
from nova_workers.domain.capabilities.rules.serving import ToolServer
from nova_workers.domain.capabilities.rules.transactions import CallTransactions
from nova_workers.domain.keys.sql.keys import DEFAULT_TENANT_ID
from nova_workers.domain.tenants.sql.settings import ensure_tenant
from nova_workers.ledger import sessions
from nova_workers.ledger.database import Database, PostgresDatabase
from nova_workers.ledger.shares import working_for
from nova_workers.ledger.visibility import all_tenants, see_tenant
from nova_workers.ledger.work import Work
from tests.requirements import proves
from tests.support.waiting import pass_time

ONE, TWO = "ten_one", "ten_two"

TABLES = """
SELECT c.relname, c.relrowsecurity, array_agg(p.polname ORDER BY p.polname) AS policies
  FROM pg_class c LEFT JOIN pg_policy p ON p.polrelid = c.oid
 WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace AND c.relname <> 'alembic_version'
 GROUP BY c.oid, c.relname, c.relrowsecurity
"""


def _policies_of(table: str) -> set[str]:
    return {"fleet"} if table in {"worker_drains", "worker_sessions"} else {"fleet", "tenant"}


@pytest.fixture
async def walled(database: Database, database_url: str) -> AsyncIterator[Database]:
    """A pool as the API has it, on a database with two tenants."""
    async with database.transaction() as connection:
        for tenant_id in (ONE, TWO):
            await ensure_tenant(connection, tenant_id, tenant_id)
            await seed_defaults(connection, tenant_id)
    walled = PostgresDatabase(database_url, pool_size=2, access="tenants")
    yield walled
    await walled.close()


class _NoInput(ToolInput):
    pass


@proves("tenants.second-wall")
@pytest.mark.parametrize("read_only", [True, False])
async def test_a_tool_that_forgets_its_tenant_reaches_only_rows_of_the_tenant_of_its_run(
    walled: Database, database: Database, database_url: str, read_only: bool
) -> None:
    await database.execute(
        "INSERT INTO notes (id, tenant_id, agent_id, title) SELECT 'note_' || id, id, 'nova', 'private' FROM tenants"
    )
    fleet = PostgresDatabase(database_url, pool_size=1, access="fleet")
    calls = CallTransactions(Work(fleet))
    reached: list[str] = []

    async def forgetful(_: CapabilityContext, __: _NoInput) -> str:
        if not read_only:
            reached.append(await calls.work.database.execute("UPDATE notes SET title = 'mine'"))
        reached.extend(row["tenant_id"] for row in await calls.work.database.fetch("SELECT tenant_id FROM notes"))
        return "done"

    tool = ToolDeclaration(name="t", description="t", input=_NoInput, run=forgetful, read_only=read_only)
    context = CapabilityContext(TWO, "nova", "thr_1", "run_1", fence=1)
    served = await ToolServer(calls)(DeclaredServer("c", (tool,), context))
    async with Client(served.built()) as client:
        await client.call_tool("t", {})
    assert reached == ([TWO] if read_only else ["UPDATE 1", TWO])
    # Outside of tools a worker serves all tenants.
    assert len(await fleet.fetch("SELECT id FROM notes")) == 2
    await fleet.close()


@proves("tenants.second-wall")
async def test_every_table_with_a_tenant_has_row_level_security_and_its_policies(database: Database) -> None:
    without_tenant = {name for name, table in metadata.tables.items() if "tenant_id" not in table.columns}
    known = {"tenants", "worker_drains", "worker_installs", "worker_sessions"}
    assert without_tenant == known, "say in row_security.py who sees them"
    missing = [
        row["relname"]
        for row in await database.fetch(TABLES)
        if not row["relrowsecurity"] or not _policies_of(row["relname"]) <= set(row["policies"])
    ]
    assert missing == [], "add protect() of models/rights/row_security.py for each table to the migration that makes it"


@proves("tenants.second-wall")
async def test_a_statement_that_forgets_its_tenant_sees_and_changes_that_of_its_session_only(walled: Database) -> None:
    see_tenant(ONE)
    assert {row["tenant_id"] for row in await walled.fetch("SELECT tenant_id FROM agents")} == {ONE}
    assert await walled.fetchval("SELECT count(*) FROM agents WHERE tenant_id = :other", other=TWO) == 0
    assert await walled.fetchval("SELECT array_agg(id) FROM tenants") == [ONE]
    changed = await walled.execute("UPDATE agents SET deleted_at = now()")
    deleted = await walled.execute("DELETE FROM agents WHERE tenant_id <> :own", own=ONE)
    assert (changed, deleted) == ("UPDATE 2", "DELETE 0")
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
        await walled.execute(
            "INSERT INTO memories (id, tenant_id, agent_id, content) VALUES ('mem_1', :other, 'nova', 'planted')",
            other=TWO,
        )
    see_tenant(TWO)
    assert await walled.fetchval("SELECT count(*) FROM agents WHERE deleted_at IS NOT NULL") == 0
    async with walled.transaction() as connection:
        assert {row["tenant_id"] for row in await connection.fetch("SELECT tenant_id FROM agents")} == {TWO}
    with all_tenants():
        assert await walled.fetchval("SELECT count(DISTINCT tenant_id) FROM agents") == 2


@proves("ceilings.own")
async def test_the_role_of_a_tenant_changes_no_ceilings(walled: Database) -> None:
    see_tenant(ONE)
    # The statement of a tenant's own settings writes them too, as they are.
    assert await walled.execute("UPDATE tenants SET timezone = 'Europe/Oslo', ceilings = ceilings") == "UPDATE 1"
    for statement in (
        "UPDATE tenants SET ceilings = '{}'",
        f"UPDATE tenants SET work_from = 1, ceilings = '{{\"trust\": \"unrestricted\"}}' WHERE id = '{ONE}'",
        f"DELETE FROM tenants WHERE id = '{ONE}'",
        f"INSERT INTO tenants (id, name) VALUES ('{ONE}', 'x') ON CONFLICT (id) DO UPDATE SET ceilings = '{{}}'",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await walled.execute(statement)
    with all_tenants():
        assert await walled.execute("UPDATE tenants SET ceilings = '{}' WHERE id = :id", id=ONE) == "UPDATE 1"


@proves("security.shares")
async def test_one_tenant_leaves_a_connection_of_each_pool_to_others(database_url: str) -> None:
    database = PostgresDatabase(
        database_url, pool_size=4, access="tenants", reserved=2, per_tenant=8, command_timeout_s=60
    )
    async with AsyncExitStack() as held:
        working_for(ONE)
        with all_tenants():
            await held.enter_async_context(database.connection())
            asking = asyncio.create_task(held.enter_async_context(database.connection()))
            await pass_time(61)
            with pytest.raises(Unavailable):
                await asking
        see_tenant(ONE)
        await held.enter_async_context(database.connection())
        working_for(TWO)
        with all_tenants():
            assert await database.fetchval("SELECT 1") == 1
    await database.close()


@proves("tenants.second-wall")
async def test_a_context_that_is_bound_to_nothing_has_no_database(database_url: str) -> None:
    unbound = PostgresDatabase(database_url, pool_size=1, access="tenants")
    with pytest.raises(RuntimeError, match="No tenant is bound"):
        await unbound.fetch("SELECT 1")
    await unbound.close()


async def test_a_session_is_bound_again_only_when_its_tenant_changes(
    walled: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound: list[str] = []
    bind = sessions.bind

    def counted(statement: str, values: dict[str, str]) -> tuple[str, list[str]]:
        bound.append(values["tenant_id"])
        return bind(statement, values)

    monkeypatch.setattr(sessions, "bind", counted)
    for tenant_id in (ONE, ONE, TWO, TWO, ONE):
        see_tenant(tenant_id)
        await walled.fetch("SELECT 1")
        async with walled.transaction() as connection:
            await connection.fetch("SELECT 1")
    assert bound == [ONE, TWO, ONE]


async def test_a_tenant_sees_that_the_fleet_is_paused_and_cannot_change_it(walled: Database) -> None:
    with all_tenants():
        await walled.execute("INSERT INTO switches (scope, tenant_id, target) VALUES ('fleet', '', '')")
    see_tenant(ONE)
    assert await walled.fetchval("SELECT count(*) FROM switches") == 1
    assert await walled.execute("DELETE FROM switches") == "DELETE 0"


@pytest.mark.parametrize("role", [FLEET_ROLE, TENANT_ROLE])
async def test_the_roles_of_the_fleet_change_rows_and_not_tables(database_url: str, role: str) -> None:
    connection = await asyncpg.connect(database_url)
    await connection.execute(f"SET ROLE {role}")
    for statement in (
        "CREATE TABLE mine (id int)",
        "ALTER TABLE runs DISABLE ROW LEVEL SECURITY",
        "DROP POLICY tenant ON runs",
        "TRUNCATE runs",
        "UPDATE alembic_version SET version_num = '0001'",
        "CREATE ROLE mine",
        "COPY runs TO PROGRAM 'true'",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(statement)
    await connection.close()


async def test_a_database_that_is_not_migrated_is_reported_with_what_to_do(
    database: Database, database_url: str
) -> None:
    await database.execute("CREATE ROLE nova_stranger LOGIN")
    try:
        stranger = PostgresDatabase(
            database_url.replace("//postgres@", "//nova_stranger@"), pool_size=1, access="fleet"
        )
        with pytest.raises(Unavailable, match="GRANT nova_fleet, nova_tenant"):
            await stranger.fetch("SELECT 1")
    finally:
        await database.execute("DROP ROLE nova_stranger")


async def test_migrating_as_the_owner_makes_a_user_who_changes_rows_and_no_tables(
    database: Database, database_url: str
) -> None:
    user_url = database_url.replace("//postgres@", "//nova_app:of-the-app@")
    try:
        await ensure_login(database_url, user_url)
        await ensure_login(database_url, user_url)
        stored = await database.fetchval("SELECT rolpassword FROM pg_authid WHERE rolname = 'nova_app'")
        salt = b64decode(stored.split("$")[1].partition(":")[2])
        assert stored == scram_verifier("of-the-app", salt)
        assert await make_first_key(user_url) is not None
        user = PostgresDatabase(user_url, pool_size=1, access="tenants")
        see_tenant(DEFAULT_TENANT_ID)
        assert await user.fetchval("SELECT count(*) FROM agents") == 2
        with all_tenants():
            assert await user.fetchval("SELECT count(*) FROM api_keys") == 1
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await user.execute("CREATE TABLE mine (id int)")
        await user.close()
        await migrate.upgrade(user_url)
    finally:
        await database.execute("DROP OWNED BY nova_app")
        await database.execute("DROP ROLE nova_app")


async def test_postgres_stores_the_verifier_that_we_compute(database: Database) -> None:
    await database.execute("CREATE ROLE nova_verified PASSWORD 'of the app'")
    stored = await database.fetchval("SELECT rolpassword FROM pg_authid WHERE rolname = 'nova_verified'")
    await database.execute("DROP ROLE nova_verified")
    assert stored == scram_verifier("of the app", b64decode(stored.split("$")[1].partition(":")[2]))


@pytest.mark.parametrize(("user", "why"), [("", "names no user"), ("nova_new@", "no password in ASCII")])
async def test_a_url_that_cannot_make_its_user_is_refused(database_url: str, user: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        await ensure_login(database_url, database_url.replace("postgres@", user))
