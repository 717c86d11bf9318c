"""The errors that callers get when the database goes away: they state whether anything may have been written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from nova_workers.errors import Unavailable
from nova_workers.ledger.database import Database
from tests.requirements import proves
from tests.support.servers.redis_proxy import RedisProxy

_INSERT = "INSERT INTO tenants (id, name) VALUES (:id, 'x')"


@pytest.fixture
async def wire(database_url: str, tmp_path: Path) -> AsyncIterator[RedisProxy]:
    """A proxy to the test's database."""
    folder = parse_qs(urlsplit(database_url).query)["host"][0]
    proxy = RedisProxy(f"unix://{folder}/.s.PGSQL.5432", tmp_path, name=".s.PGSQL.5432")
    async with proxy:
        yield proxy


def _deafen(wire: RedisProxy) -> None:
    """Lose the next answer, and the connection with it."""
    wire.cuts_next_answer = True


@pytest.fixture
async def far(database_url: str, wire: RedisProxy, tmp_path: Path) -> AsyncIterator[Database]:
    """The test's database behind the proxy."""
    url = urlsplit(database_url)._replace(query=f"host={quote(str(tmp_path))}").geturl()
    database = Database(url, pool_size=1, command_timeout_s=5)
    yield database
    await database.close()


@proves("unavailable.says-what")
async def test_a_commit_whose_reply_is_lost_may_have_been_written(
    far: Database, wire: RedisProxy, database: Database
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
    far: Database, wire: RedisProxy, database: Database
) -> None:
    # The statement is prepared: one answer is left to be lost.
    await far.execute(_INSERT, id="ten_1")
    _deafen(wire)
    with pytest.raises(Unavailable, match="may have been written"):
        await far.execute(_INSERT, id="ten_2")
    assert await database.fetchval("SELECT count(*) FROM tenants WHERE id = 'ten_2'") == 1


@proves("unavailable.says-what")
async def test_a_transaction_that_breaks_before_its_commit_wrote_nothing(
    far: Database, wire: RedisProxy, database: Database
) -> None:
    async def write() -> None:
        async with far.transaction() as connection:
            await connection.execute(_INSERT, id="ten_lost")
            wire.cut()
            await connection.execute(_INSERT, id="ten_lost_2")

    with pytest.raises(Unavailable, match="Nothing was written; try again") as caught:
        await write()
    assert caught.value.fields["may_be_written"] is False
    assert await database.fetchval("SELECT count(*) FROM tenants WHERE id LIKE 'ten_lost%'") == 0


@proves("unavailable.says-what")
async def test_a_read_only_statement_wrote_nothing(far: Database, wire: RedisProxy) -> None:
    await far.fetchval("SELECT 1")
    _deafen(wire)
    with pytest.raises(Unavailable, match="Nothing was written"):
        await far.fetchval("SELECT 1")


@proves("unavailable.says-what")
async def test_a_refused_connection_wrote_nothing(far: Database, wire: RedisProxy) -> None:
    wire.refusing = True
    with pytest.raises(Unavailable, match="Nothing was written"):
        await far.execute(_INSERT, id="ten_lost")
