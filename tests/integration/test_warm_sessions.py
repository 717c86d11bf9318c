"""A session that a test takes up from the one before has nothing that was left in it."""

from __future__ import annotations

from nova_workers.ledger.database import PostgresDatabase, Row
from nova_workers.ledger.sessions import TENANT_ROLE
from tests.support.harness.warm_sessions import warm_sessions

_PID = "SELECT pg_backend_pid()"
_LEFT = """
SELECT current_user = session_user AS is_itself, current_setting('nova.tenant', true) AS tenant,
       current_setting('work_mem') AS work_mem,
       (SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory') AS locks,
       to_regclass('pg_temp.left_over') IS NULL AS is_empty, (SELECT count(*) FROM pg_listening_channels()) AS channels
"""

_PREPARED = "SELECT name FROM pg_prepared_statements WHERE statement LIKE '%''kept'' AS mark'"


async def _left(url: str, *, dirty: bool) -> tuple[int, dict[str, object]]:
    """Return a session's process id and what is left in it."""
    database = PostgresDatabase(url, pool_size=1)
    async with database.connection() as connection:
        pid = await connection.fetchval(_PID)
        row = await connection.fetchrow(_LEFT)
        assert row is not None
        if dirty:
            await connection.execute("CREATE TEMP TABLE left_over (id int)")
            await connection.fetch("SELECT * FROM left_over")
            await connection.execute("SELECT pg_advisory_lock(1), set_config('work_mem', '1MB', false)")
            await connection.execute("LISTEN left_over")
            await connection.execute("SELECT set_config('nova.tenant', 'ten_1', false)")
            await connection.execute(f"SET ROLE {TENANT_ROLE}")
    await database.close()
    return pid, dict(row)


async def test_a_session_that_is_taken_up_again_has_nothing_left(database_url: str) -> None:
    with warm_sessions.none():
        pass  # A test before may have left several of this database, which are taken up in turn.
    before, new = await _left(database_url, dirty=True)
    after, left = await _left(database_url, dirty=False)
    assert after == before
    assert left.pop("tenant") in {None, ""}
    nothing = {
        "is_itself": True,
        "locks": 0,
        "is_empty": True,
        "channels": 0,
        "work_mem": new["work_mem"],
    }
    assert left == nothing


async def test_a_session_that_is_taken_up_again_has_its_statements(database_url: str) -> None:
    prepared: list[list[Row]] = []
    for _ in range(2):
        database = PostgresDatabase(database_url, pool_size=1)
        async with database.connection() as connection:
            row = await connection.fetchrow("SELECT :value::jsonb AS value, 'kept' AS mark", value={"a": [1]})
            assert row is not None
            assert row["value"] == {"a": [1]}
            prepared.append(await connection.fetch(_PREPARED))
        await database.close()
    first, second = prepared
    assert first == second
    assert len(first) == 1


async def test_a_session_that_ended_meanwhile_is_not_taken_up(database_url: str) -> None:
    other = PostgresDatabase(database_url, pool_size=2)
    async with other.connection() as first, other.connection():
        pid = await first.fetchval(_PID)
    await other.close()
    admin = PostgresDatabase(database_url, pool_size=1, name="another")
    try:
        assert await admin.fetchval("SELECT pg_terminate_backend(:pid, 10000)", pid=pid)
    finally:
        await admin.close()
    for _ in range(2):
        after, _left_over = await _left(database_url, dirty=False)
        assert after != pid


async def test_with_ending_sessions_each_is_new(ending_sessions: None, database_url: str) -> None:
    before, _ = await _left(database_url, dirty=False)
    after, _ = await _left(database_url, dirty=False)
    assert after != before


async def test_the_oldest_gives_way_to_a_new_one(database_url: str) -> None:
    for number in range(8):
        other = PostgresDatabase(database_url, pool_size=1, name=f"kind-{number}")
        await other.fetchval(_PID)
        await other.close()
    before, _ = await _left(database_url, dirty=False)
    after, _ = await _left(database_url, dirty=False)
    assert after == before
