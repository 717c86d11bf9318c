"""The doctor's checks of a database, without a fleet."""

import pytest

from nova_workers.cli.operations import database_checks
from nova_workers.cli.operations.database_checks import check_database
from nova_workers.cli.operations.findings import Finding
from nova_workers.domain.upkeep.sql.cursors import add_tenant_cursors
from nova_workers.ledger.database import Database
from tests.integration.effects.ledger import seed_run, seed_thread
from tests.integration.scheduling.old_runs import old_run


async def _finding(url: str, name: str) -> Finding:
    (found,) = [finding for finding in await check_database(url) if finding.name == name]
    return found


async def test_a_pgvector_that_is_too_old_is_reported(database: Database, database_url: str) -> None:
    assert (await _finding(database_url, "pgvector")).state == "ok"
    await database.execute("UPDATE pg_extension SET extversion = '0.7.4' WHERE extname = 'vector'")
    found = await _finding(database_url, "pgvector")
    assert (found.state, found.detail) == ("fail", "0.7.4 is too old for search by meaning")
    assert "ALTER EXTENSION" in found.fix
    await database.execute("UPDATE pg_extension SET extversion = '0.10.0' WHERE extname = 'vector'")
    assert (await _finding(database_url, "pgvector")).state == "ok"


async def test_an_unfinished_backfill_is_reported(database: Database, database_url: str) -> None:
    assert "all earlier messages are in it" in (await _finding(database_url, "search index")).detail
    await old_run(database, "hello", thread=await seed_thread(database))
    async with database.connection() as connection:
        await add_tenant_cursors(connection, variant="m")
    assert "of 1 tenant is" in (await _finding(database_url, "search index")).detail


async def test_effects_whose_package_no_worker_has_are_reported(database: Database, database_url: str) -> None:
    await seed_run(database, effects=("title", "desk:log_run"))
    assert not [found for found in await check_database(database_url) if found.name == "effects of packages"]
    await database.execute("UPDATE effects SET due_at = '2010-01-02 03:04+00'")
    found = await _finding(database_url, "effects of packages")
    assert (found.state, found.detail) == (
        "warn",
        "no live worker has their package: 1 of desk:log_run since 2010-01-02 03:04 UTC",
    )
    assert "install desk beside a worker" in found.fix
    await database.execute("UPDATE effects SET status = 'done', done_at = now()")
    assert not [found for found in await check_database(database_url) if found.name == "effects of packages"]


async def test_connections_and_a_transaction_that_is_open_for_long_are_reported(
    database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_checks, "_MANY_CONNECTIONS", 2)
    assert (await _finding(database_url, "connections")).state == "ok"
    monkeypatch.setattr(database_checks, "_MANY_CONNECTIONS", 0)
    found = await _finding(database_url, "connections")
    assert found.state == "warn"
    assert "max_connections" in found.fix

    monkeypatch.setattr(database_checks, "LONG_TRANSACTION_S", 0)
    async with database.transaction() as connection:
        await connection.fetchval("SELECT 1")
        found = await _finding(database_url, "long transactions")
        assert found.state == "warn"
        assert "is open for" in found.detail
        assert "pg_terminate_backend(" in found.fix
