"""The errors that callers get when the database goes away: they state whether anything may have been written."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from nova_workers.base.errors import Unavailable
from nova_workers.ledger import sessions
from nova_workers.ledger.database import Connection, Database, PostgresDatabase
from tests.requirements import proves
from tests.support.servers.fault_proxy import FaultProxy
from tests.support.waiting import pass_time, until

_IS_UNLOCKED = "SELECT count(*) = 0 FROM pg_locks WHERE relation = 'tenants'::regclass AND mode = 'RowExclusiveLock'"
_SLEEPS = "SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE '%pg_sleep(190)' AND state = 'active'"
_INSERT = "INSERT INTO tenants (id, name) VALUES (:id, 'x')"


@pytest.fixture
async def wire(database_url: str, tmp_path: Path) -> AsyncIterator[FaultProxy]:
    """A proxy to the test's database."""
    async with FaultProxy.to_postgres(database_url, tmp_path) as proxy:
        yield proxy


def _deafen(wire: FaultProxy) -> None:
    """Lose the next answer, and the connection with it."""
    wire.loses_answer_to = b""


@pytest.fixture
async def far(wire: FaultProxy) -> AsyncIterator[PostgresDatabase]:
    """The test's database behind the proxy."""
    database = PostgresDatabase(wire.url, pool_size=1, command_timeout_s=60)
    yield database
    await database.close()


@proves("unavailable.says-what")
async def test_a_commit_whose_reply_is_lost_may_have_been_written(
    far: Database, wire: FaultProxy, database: Database
) -> None:
    async def write() -> None:
        async with far.transaction() as connection:
            await connection.execute(_INSERT, id="ten_lost")
            _deafen(wire)

    with pytest.raises(Unavailable, match=r"may have been written.*Idempotency-Key") as caught:
        await write()
    assert caught.value.fields["may_be_written"] is True
    assert await database.fetchval("SELECT count(*) FROM tenants WHERE id = 'ten_lost'") == 1


@proves("unavailable.says-what")
async def test_a_statement_whose_reply_is_lost_may_have_been_written(
    far: Database, wire: FaultProxy, database: Database
) -> None:
    # The statement is prepared: one answer is left to be lost.
    await far.execute(_INSERT, id="ten_1")
    _deafen(wire)
    with pytest.raises(Unavailable, match="may have been written"):
        await far.execute(_INSERT, id="ten_2")
    assert await database.fetchval("SELECT count(*) FROM tenants WHERE id = 'ten_2'") == 1


@proves("unavailable.says-what")
async def test_a_transaction_that_breaks_before_its_commit_wrote_nothing(
    far: Database, wire: FaultProxy, database: Database
) -> None:
    async def write() -> None:
        async with far.transaction() as connection:
            await connection.execute(_INSERT, id="ten_lost")
            wire.reset()
            await connection.execute(_INSERT, id="ten_lost_2")

    with pytest.raises(Unavailable, match="Nothing was written; try again") as caught:
        await write()
    assert caught.value.fields["may_be_written"] is False
    assert await database.fetchval("SELECT count(*) FROM tenants WHERE id LIKE 'ten_lost%'") == 0


@proves("unavailable.says-what")
async def test_a_read_only_statement_wrote_nothing(far: Database, wire: FaultProxy) -> None:
    await far.fetchval("SELECT 1")
    _deafen(wire)
    with pytest.raises(Unavailable, match="Nothing was written"):
        await far.fetchval("SELECT 1")


@proves("unavailable.says-what")
async def test_a_refused_connection_wrote_nothing(far: Database, wire: FaultProxy) -> None:
    wire.refuses = True
    with pytest.raises(Unavailable, match="Nothing was written"):
        await far.execute(_INSERT, id="ten_lost")


@proves("unavailable.says-what")
@pytest.mark.usefixtures("ending_sessions")
async def test_a_database_that_takes_no_writes_is_unavailable_until_it_takes_them_again(
    database_url: str, postgres_url_admin: str
) -> None:
    name = urlsplit(database_url).path.strip("/")
    admin = PostgresDatabase(postgres_url_admin, pool_size=1)
    await admin.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    # As its standby was when the connections were opened.
    standby = PostgresDatabase(database_url, pool_size=2)
    try:
        with pytest.raises(Unavailable, match=r"read-only.*Nothing was written"):
            await standby.execute(_INSERT, id="ten_1")
        with pytest.raises(Unavailable, match="Nothing was written"):
            async with standby.transaction() as connection:
                await connection.execute(_INSERT, id="ten_1")
    finally:
        await admin.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
        await admin.close()
    await standby.execute(_INSERT, id="ten_1")
    await standby.close()


async def test_connections_that_a_firewall_forgot_cost_seconds_once(
    far: Database, wire: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    await far.execute(_INSERT, id="ten_1")
    monkeypatch.setattr(sessions, "_IDLE_S", 0.0)
    monkeypatch.setattr(sessions, "_PROBE_S", 0.2)
    wire.forget()
    async with asyncio.timeout(60):
        await far.execute(_INSERT, id="ten_2")
    assert await far.fetchval("SELECT count(*) FROM tenants WHERE id LIKE 'ten__'") == 2


async def test_a_statement_on_a_lost_connection_holds_its_place_in_the_pool_for_one_timeout(
    wire: FaultProxy, database: Database
) -> None:
    pool = PostgresDatabase(wire.url, pool_size=1, command_timeout_s=60)
    await pool.fetchval("SELECT 1")
    hanging = asyncio.create_task(pool.execute("SELECT pg_sleep(190)"))
    await until(lambda: database.fetchval(_SLEEPS))
    wire.forget()
    await pass_time(61)
    async with asyncio.timeout(50):
        with pytest.raises(Unavailable, match="did not answer"):
            await hanging
        assert await pool.fetchval("SELECT 1") == 1
    await pool.close()


@pytest.mark.parametrize("lend", [PostgresDatabase.connection, PostgresDatabase.transaction])
async def test_a_caller_that_stops_waiting_for_a_silent_database_continues_within_a_second(
    far: PostgresDatabase, wire: FaultProxy, lend: Callable[[PostgresDatabase], AbstractAsyncContextManager[Connection]]
) -> None:
    async def ask() -> None:
        async with lend(far) as connection:
            await connection.fetchval("SELECT 1")
            wire.blocks_answers = True
            await connection.fetchval("SELECT 2")

    asked_s = time.monotonic()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await ask()
    assert time.monotonic() - asked_s < 30
    wire.heal()
    assert await far.fetchval("SELECT 1") == 1


async def test_postgres_asks_within_a_minute_whether_a_silent_client_is_there(database: Database) -> None:
    # By a socket file the values themselves have no meaning, and are 0.
    settings = "SELECT count(*) FROM pg_settings WHERE name LIKE 'tcp_keepalives%' AND source = 'session'"
    assert await database.fetchval(settings) == 3


@proves("unavailable.says-what")
async def test_a_transaction_whose_process_was_stopped_loses_its_locks_and_wrote_nothing(database: Database) -> None:
    assert await database.fetchval("SHOW idle_in_transaction_session_timeout") == "20s"

    async def write() -> None:
        async with database.transaction() as connection:
            await connection.execute("SET LOCAL idle_in_transaction_session_timeout = '50ms'")
            await connection.execute(_INSERT, id="ten_idle")
            await until(lambda: database.fetchval(_IS_UNLOCKED))
            await connection.execute(_INSERT, id="ten_idle_2")

    with pytest.raises(Unavailable, match="Nothing was written; try again"):
        await write()
    assert await database.fetchval("SELECT count(*) FROM tenants WHERE id LIKE 'ten_idle%'") == 0
