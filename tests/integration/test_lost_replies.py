"""The errors that callers get when the database goes away: they state whether anything may have been written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nova_workers.errors import Unavailable
from nova_workers.ledger.database import Database
from tests.requirements import proves
from tests.support.servers.fault_proxy import FaultProxy

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
async def far(wire: FaultProxy) -> AsyncIterator[Database]:
    """The test's database behind the proxy."""
    database = Database(wire.url, pool_size=1, command_timeout_s=5)
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
