"""The first start prepares a database, and later starts keep its data."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import get_args

import pytest
from pydantic import SecretStr

from nova_workers.base.config import Settings
from nova_workers.base.errors import ConfigurationError, Unavailable
from nova_workers.contracts.http.scopes import Scope
from nova_workers.devstack.first_start import MASTER_KEYS_FILE, make_first_key, master_keys, prepare_database
from nova_workers.domain.agents.sql.records import list_agents
from nova_workers.domain.keys.sql.keys import DEFAULT_TENANT_ID, find_key, hash_secret, list_keys, revoke_key
from nova_workers.ledger.database import Database
from tests.requirements import proves


async def test_the_first_start_creates_a_tenant_agents_and_a_key(
    settings: Settings, database: Database, database_url: str
) -> None:
    path = await prepare_database(settings, database_url)
    async with database.connection() as connection:
        key = await find_key(connection, hash_secret(_read(path)))
        agents = await list_agents(connection, DEFAULT_TENANT_ID, after=None, limit=10)
    assert key is not None
    assert key.tenant_id == DEFAULT_TENANT_ID
    assert key.scopes == set(get_args(Scope))
    assert [agent.id for agent in agents] == ["agent-builder", "nova"]


@proves("audit.who")
async def test_the_first_key_is_in_the_audit_log_with_the_command_that_made_it(
    settings: Settings, database: Database, database_url: str
) -> None:
    await prepare_database(settings, database_url)
    await prepare_database(settings, database_url)
    rows = await database.fetch("SELECT * FROM audit_events ORDER BY id")
    assert [row["action"] for row in rows] == ["tenant.created", *["agent.created"] * 2, "key.created"]
    assert {(row["actor_kind"], row["actor_id"], row["tenant_id"]) for row in rows} == {
        ("command", "nova up", DEFAULT_TENANT_ID)
    }
    assert all(row["address"] for row in rows)


async def test_a_later_start_keeps_the_key(settings: Settings, database: Database, database_url: str) -> None:
    first = _read(await prepare_database(settings, database_url))
    assert _read(await prepare_database(settings, database_url)) == first
    async with database.connection() as connection:
        assert len(await list_keys(connection, DEFAULT_TENANT_ID, before=None, limit=10)) == 1


async def test_a_revoked_key_is_replaced(settings: Settings, database: Database, database_url: str) -> None:
    first = _read(await prepare_database(settings, database_url))
    async with database.connection() as connection:
        key = await find_key(connection, hash_secret(first))
        assert key is not None
        await revoke_key(connection, DEFAULT_TENANT_ID, key.key_id)
    assert _read(await prepare_database(settings, database_url)) != first


async def test_two_homes_on_one_database_have_a_key_each(
    settings: Settings, tmp_path: Path, database: Database, database_url: str
) -> None:
    (tmp_path / "other").mkdir()
    other = settings.model_copy(update={"home": tmp_path / "other"})
    first = _read(await prepare_database(settings, database_url))
    assert _read(await prepare_database(other, database_url)) != first
    async with database.connection() as connection:
        assert len(await list_keys(connection, DEFAULT_TENANT_ID, before=None, limit=10)) == 2


async def test_the_first_tenant_has_the_time_zone_of_the_settings(
    settings: Settings, database: Database, database_url: str
) -> None:
    await prepare_database(settings.model_copy(update={"timezone": "Europe/Oslo"}), database_url)
    await prepare_database(settings.model_copy(update={"timezone": "Asia/Tokyo"}), database_url)
    assert await database.fetchval("SELECT timezone FROM tenants") == "Europe/Oslo"


async def test_concurrent_starts_create_the_first_key_once(database: Database, database_url: str) -> None:
    made = await asyncio.gather(*(make_first_key(database_url) for _ in range(4)))
    (key,) = [key for key in made if key is not None]
    async with database.connection() as connection:
        assert await find_key(connection, hash_secret(key)) is not None
    assert await make_first_key(database_url) is None


async def test_an_unreachable_database_is_reported(settings: Settings, tmp_path: Path) -> None:
    url = f"postgresql://nobody@/nova?host={tmp_path}"
    with pytest.raises(Unavailable, match="cannot be reached"):
        await prepare_database(settings.model_copy(update={"database_url": SecretStr(url)}), url)


def _read(path: Path) -> str:
    return path.read_text().strip()


def test_a_home_keeps_a_master_key_that_only_its_owner_can_read(tmp_path: Path) -> None:
    first = master_keys(tmp_path)
    assert master_keys(tmp_path) == first
    assert (tmp_path / MASTER_KEYS_FILE).stat().st_mode & 0o777 == 0o600
    assert Settings.model_validate({"secrets": {"keys": first}}).secrets.source.texts() == first


def test_the_first_master_key_is_the_current_one(tmp_path: Path) -> None:
    (old,) = master_keys(tmp_path)
    newer = f"2027:{old.partition(':')[2]}"
    (tmp_path / MASTER_KEYS_FILE).write_text(f"{newer}\n{old}\n")
    assert master_keys(tmp_path) == (newer, old)


def test_a_file_of_master_keys_that_cannot_be_read_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / MASTER_KEYS_FILE).write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        master_keys(tmp_path)
