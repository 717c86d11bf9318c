"""Tenants and API keys in the ledger."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from nova_workers.base.errors import NotFound
from nova_workers.contracts.http.scopes import with_included
from nova_workers.domain.keys.sql.keys import create_key, find_key, hash_secret, list_keys, revoke_key
from nova_workers.domain.tenants.sql.settings import ensure_tenant
from nova_workers.ledger.database import Database


@pytest.fixture
async def tenant_id(database: Database) -> str:
    """A tenant with nothing in it."""
    async with database.connection() as connection:
        assert await ensure_tenant(connection, "ten_one", "One")
    return "ten_one"


async def test_a_tenant_is_created_once(database: Database, tenant_id: str) -> None:
    async with database.connection() as connection:
        assert not await ensure_tenant(connection, tenant_id, "Another name")
    assert await database.fetchval("SELECT name FROM tenants WHERE id = :tenant_id", tenant_id=tenant_id) == "One"


async def test_a_key_is_found_by_its_secret_which_is_not_stored(database: Database, tenant_id: str) -> None:
    async with database.connection() as connection:
        made = await create_key(connection, tenant_id, name="mine", scopes=["runs", "agents", "runs"])
        found = await find_key(connection, hash_secret(made.key))
    assert made.key.startswith("nova_")
    assert len(made.key) == len("nova_") + 43
    assert made.prefix == made.key[:12]
    assert found is not None
    assert (found.key_id, found.tenant_id, found.scopes) == (made.id, tenant_id, with_included({"runs", "agents"}))
    row = await database.fetchval("SELECT api_keys::text FROM api_keys")
    assert made.key not in row


async def test_an_unknown_secret_finds_nothing(database: Database, tenant_id: str) -> None:
    async with database.connection() as connection:
        assert await find_key(connection, hash_secret("nova_guess")) is None


async def test_an_expired_key_is_not_found(database: Database, tenant_id: str) -> None:
    past = datetime.now(UTC) - timedelta(seconds=1)
    async with database.connection() as connection:
        made = await create_key(connection, tenant_id, name="old", scopes=["runs"], expires_at=past)
        assert await find_key(connection, hash_secret(made.key)) is None


async def test_a_revoked_key_is_not_found_and_keeps_the_time_of_the_first_revocation(
    database: Database, tenant_id: str
) -> None:
    async with database.connection() as connection:
        made = await create_key(connection, tenant_id, name="lost", scopes=["runs"])
        first = await revoke_key(connection, tenant_id, made.id)
        assert await find_key(connection, hash_secret(made.key)) is None
        again = await revoke_key(connection, tenant_id, made.id)
    assert first.revoked_at is not None
    assert again == first


async def test_keys_are_listed_newest_first_in_pages(database: Database, tenant_id: str) -> None:
    async with database.connection() as connection:
        made = [(await create_key(connection, tenant_id, name=str(n), scopes=["runs"])).id for n in range(3)]
        page = await list_keys(connection, tenant_id, before=None, limit=2)
        rest = await list_keys(connection, tenant_id, before=page[-1].id, limit=2)
    assert [key.id for key in (*page, *rest)] == sorted(made, reverse=True)


async def test_another_tenants_key_looks_like_none(database: Database, tenant_id: str) -> None:
    async with database.connection() as connection:
        await ensure_tenant(connection, "ten_two", "Two")
        made = await create_key(connection, tenant_id, name="mine", scopes=["runs"])
        with pytest.raises(NotFound, match=made.id):
            await revoke_key(connection, "ten_two", made.id)
        assert await list_keys(connection, "ten_two", before=None, limit=10) == []
        assert await find_key(connection, hash_secret(made.key)) is not None
