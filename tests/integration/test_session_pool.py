"""Sessions that are lent: to one borrower at a time, in order, and never with what another one left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import asyncpg
import pytest

from nova_workers.ledger.database import Database
from nova_workers.ledger.named_sql import bind
from nova_workers.ledger.session_pool import SessionPool
from nova_workers.ledger.sessions import session_opener
from tests.support.waiting import until

_PID = "SELECT pg_backend_pid()"
_SLEEPS = "SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)' AND state = 'active'"
_LONG_S = 20.0

Pools = Callable[..., SessionPool]

pytestmark = pytest.mark.usefixtures("ending_sessions")


@pytest.fixture
async def pools(database_url: str) -> AsyncIterator[Pools]:
    made: list[SessionPool] = []

    def make(*, size: int = 1, most_statements: int = 1_000) -> SessionPool:
        opener = session_opener(database_url, name="nova-test", role=None, command_timeout_s=_LONG_S)
        made.append(SessionPool(opener, size=size, most_statements=most_statements))
        return made[-1]

    yield make
    for pool in made:
        # A test that failed may not have released all of its sessions.
        async with asyncio.timeout(60):
            await pool.close()


async def _pid(pool: SessionPool) -> int:
    session = await pool.borrow(_LONG_S)
    try:
        return await session.fetchval(_PID) or 0
    finally:
        await pool.release(session)


async def test_a_session_is_lent_again_and_no_more_are_opened_than_the_size(pools: Pools) -> None:
    pool = pools(size=2)
    pids = await asyncio.gather(*(_pid(pool) for _ in range(20)))
    assert len(set(pids)) == 2
    assert await _pid(pool) in pids


async def test_a_session_keeps_its_prepared_statements(pools: Pools) -> None:
    pool = pools()
    session = await pool.borrow(_LONG_S)
    # asyncpg's own limit is 5 minutes after the first use; no public attribute shows it.
    assert session._stmt_cache.get_max_lifetime() == 0  # type: ignore[attr-defined]
    await pool.release(session)


async def test_a_session_knows_arrays_without_reading_the_catalogue(pools: Pools) -> None:
    at = datetime(2026, 7, 1, 12, tzinfo=UTC)
    arrays: dict[str, list[object]] = {
        "bool[]": [True, None, False],
        "bytea[]": [b"\0a,"],
        "int2[]": [-1],
        "int4[]": [[1, 2], [3, 4]],
        "int8[]": [2**40],
        "float4[]": [0.5],
        "float8[]": [0.1],
        "numeric[]": [Decimal("1.20")],
        "date[]": [at.date()],
        "timestamptz[]": [at, None],
        "interval[]": [timedelta(days=1, seconds=2)],
        "jsonb[]": [{"a,": ['"', None]}, "text", None],
    }
    pool = pools()
    session = await pool.borrow(_LONG_S)
    for kind, values in arrays.items():
        before = session.statements
        statement = f"SELECT :value::{kind}, pg_typeof(:value::{kind}) = '{kind}'::regtype"
        text, arguments = bind(statement, {"value": values})
        assert await session.fetchrow(text, *arguments) == (values, True), kind
        assert session.statements == before + 1, kind
    await pool.release(session)


async def test_the_idle_session_that_was_opened_first_is_lent(pools: Pools) -> None:
    pool = pools(size=2)
    first, second = [await pool.borrow(_LONG_S) for _ in range(2)]
    for released in ((first, second), (second, first)):
        for session in released:
            await pool.release(session)
        assert [await pool.borrow(_LONG_S) for _ in range(2)] == [first, second]
    await pool.release(first)
    await pool.release(second)


async def test_a_borrower_waits_for_its_turn_and_no_longer_than_it_may(pools: Pools) -> None:
    pool = pools()
    session = await pool.borrow(_LONG_S)
    with pytest.raises(TimeoutError):
        await pool.borrow(0.01)
    waiting = asyncio.create_task(pool.borrow(_LONG_S))
    await asyncio.sleep(0)
    await pool.release(session)
    assert await waiting is session
    await pool.release(session)


async def test_a_session_whose_statement_was_interrupted_is_lent_after_the_cancellation(
    pools: Pools, database: Database
) -> None:
    pool = pools()
    pid = await _pid(pool)

    async def sleep() -> None:
        session = await pool.borrow(_LONG_S)
        try:
            await session.execute("SELECT pg_sleep(600)")
        except asyncio.CancelledError:
            await pool.release(session, is_interrupted=True)
            raise

    sleeping = asyncio.create_task(sleep())
    await until(lambda: database.fetchval(_SLEEPS), "the statement to be executed")
    sleeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeping
    async with asyncio.timeout(60):
        assert await _pid(pool) == pid


async def test_what_a_borrower_left_in_a_transaction_is_rolled_back(pools: Pools) -> None:
    pool = pools()
    session = await pool.borrow(_LONG_S)
    await session.execute("CREATE TEMPORARY TABLE left_over (id int)")
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)  # asyncpg reports it as a defect
    await session.execute("BEGIN; INSERT INTO left_over VALUES (1)")
    await pool.release(session)
    again = await pool.borrow(_LONG_S)
    assert again is session
    assert not again.is_in_transaction()
    assert await again.fetchval("SELECT count(*) FROM left_over") == 0
    await pool.release(again)


async def test_a_session_is_replaced_after_as_many_statements_as_it_may_execute(pools: Pools) -> None:
    pool = pools(most_statements=30)
    first = await _pid(pool)
    await until(lambda: _differs(pool, first), "another session")


async def _differs(pool: SessionPool, pid: int) -> bool:
    return await _pid(pool) != pid


async def test_a_session_that_the_server_ended_is_replaced(pools: Pools, database: Database) -> None:
    pool = pools()
    session = await pool.borrow(_LONG_S)
    await pool.release(session)
    pid = session.get_server_pid()
    await database.execute("SELECT pg_terminate_backend(:pid, 5000)", pid=pid)
    await until(session.is_closed, "the end of the connection")
    assert await _pid(pool) != pid


async def test_expired_sessions_are_not_lent_again(pools: Pools) -> None:
    pool = pools(size=2)
    lent = await pool.borrow(_LONG_S)
    idle = await _pid(pool)
    lent_pid = await lent.fetchval(_PID)
    pool.expire()
    # Its borrower may finish with it.
    assert await lent.fetchval("SELECT 1") == 1
    await pool.release(lent)
    assert await _pid(pool) not in {idle, lent_pid}


async def test_a_pool_that_cannot_open_a_session_stays_usable() -> None:
    async def fail() -> None:
        raise OSError("no server")

    pool = SessionPool(fail, size=1, most_statements=10)  # pyright: ignore[reportArgumentType] - it never returns one
    for _ in range(3):
        with pytest.raises(OSError, match="no server"):
            await pool.borrow(0.5)
    await pool.close()


async def test_a_closing_pool_waits_for_its_sessions_and_lends_none(pools: Pools) -> None:
    pool = pools()
    session = await pool.borrow(_LONG_S)
    closing = asyncio.create_task(pool.close())
    await asyncio.sleep(0)
    assert not closing.done()
    await pool.release(session)
    await closing
    assert session.is_closed()
    with pytest.raises(asyncpg.InterfaceError, match="closed"):
        await pool.borrow(_LONG_S)
