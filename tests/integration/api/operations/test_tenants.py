"""Operators create, list, change and end tenants."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from dirty_equals import IsPartialDict, IsStr
from prometheus_client import CollectorRegistry
from redis.asyncio import Redis
from sqlalchemy import Table

from models import migrate
from models.tables import metadata
from nova_workers.base.clock import SystemClock
from nova_workers.base.config import RetentionSettings, Settings
from nova_workers.base.keys import run_events
from nova_workers.base.observability.metrics import Metrics
from nova_workers.domain.keys.sql.keys import create_key
from nova_workers.domain.tenants.sql.ending import SWEPT
from nova_workers.domain.upkeep.rules.retention import Retention
from nova_workers.domain.upkeep.rules.tenant_end import TenantEnd
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import make_tenant
from tests.requirements import proves
from tests.support.data.every_table import OWNED, fill_tables
from tests.support.harness.workers import Harness

# What it looks at or changes is of the whole fleet.
pytestmark = pytest.mark.usefixtures("own_api")


@pytest.fixture
async def harness(database: Database, redis: Redis, settings: Settings) -> AsyncIterator[Harness]:
    """A worker's parts."""
    harness = Harness(database, redis, settings)
    await harness.open()
    yield harness
    await harness.close()


def _retention(harness: Harness, root: Path) -> Retention:
    settings = RetentionSettings.model_validate({"every_s": 60, "busy": 1})
    end = TenantEnd(harness.work, harness.redis, root)
    metrics = Metrics(CollectorRegistry())
    return Retention(harness.database, settings, metrics, clock=SystemClock(), also=(end.step,))


async def _create(api: Api, name: str = "Acme", **fields: Any) -> dict[str, Any]:
    answer = await api.http.post("/v1/tenants", json={"name": name, **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()


@proves("tenants.operator")
async def test_an_operator_creates_a_tenant_whose_first_key_works(api: Api) -> None:
    made = await _create(api, timezone="Europe/Oslo")
    assert made == IsPartialDict(name="Acme", state="active", timezone="Europe/Oslo", id=IsStr(regex="ten_.*"))
    assert made["key"]["scopes"] == sorted(
        ["runs", "prompts", "agents", "trust", "workspace", "secrets", "keys", "channels"]
    )
    async with api.client(made["key"]["key"]) as own:
        assert (await own.get("/v1/tenant")).json()["id"] == made["id"]
        assert [agent["id"] for agent in (await own.get("/v1/agents")).json()["items"]] == ["agent-builder", "nova"]
        assert (await own.get("/v1/tenants")).status_code == 403
    assert (await api.http.get(f"/v1/tenants/{made['id']}")).json() == {k: v for k, v in made.items() if k != "key"}


async def test_a_tenant_id_is_unique(api: Api) -> None:
    made = await _create(api, id="acme")
    assert made["id"] == "acme"
    again = await api.http.post("/v1/tenants", json={"name": "Other", "id": "acme"})
    assert (again.status_code, again.json()["code"]) == (409, "conflict")
    for wrong in ({"name": "x", "id": "A b"}, {"name": " "}, {"name": "x", "timezone": "Mars"}):
        assert (await api.http.post("/v1/tenants", json=wrong)).status_code == 422


async def test_all_tenants_are_listed_page_by_page(api: Api) -> None:
    made = {(await _create(api, name))["id"] for name in ("One", "Two", "Three")} | {api.tenant.id}
    found: list[str] = []
    cursor = None
    while True:
        page = (await api.http.get("/v1/tenants", params={"limit": 2} | ({"cursor": cursor} if cursor else {}))).json()
        found += [tenant["id"] for tenant in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found == sorted(found)
    assert made <= set(found)


async def test_a_tenant_is_changed_and_paused(api: Api) -> None:
    tenant_id = (await _create(api))["id"]
    change = {"name": "Acme Ltd", "weight": 3, "paused": True, "max_running": 2}
    changed = (await api.http.patch(f"/v1/tenants/{tenant_id}", json=change)).json()
    assert changed == IsPartialDict(name="Acme Ltd", weight=3, state="paused", max_running=2)
    changed = (await api.http.patch(f"/v1/tenants/{tenant_id}", json={"paused": False, "max_running": None})).json()
    assert changed == IsPartialDict(name="Acme Ltd", state="active", max_running=None)
    assert (await api.http.patch("/v1/tenants/ten_none", json={"weight": 2})).status_code == 404


@pytest.mark.parametrize("method", ["POST", "GET", "PATCH", "DELETE"])
async def test_only_operators_see_tenants(api: Api, database: Database, method: str) -> None:
    async with database.connection() as connection:
        scopes = ["agents", "keys", "runs"]
        key = (await create_key(connection, api.tenant.id, name="some", scopes=scopes)).key
    path = "/v1/tenants" if method in ("POST", "GET") else f"/v1/tenants/{api.tenant.id}?confirm=test"
    body = {"name": "Acme"} if method in ("POST", "PATCH") else None
    async with api.client(key) as own:
        assert (await own.request(method, path, json=body)).status_code == 403


def _write_file(directory: Path) -> None:
    directory.mkdir(parents=True)
    (directory / "a.txt").write_text("x")


async def _counts(database: Database, tenant_id: str) -> dict[str, int]:
    return {
        table.name: await database.fetchval(
            f"SELECT count(*) FROM {table.name} WHERE tenant_id = :tenant_id", tenant_id=tenant_id
        )
        for table in OWNED
    }


def _under_threads(table: Table) -> bool:
    parents = {key.column.table for key in table.foreign_keys} - {table}
    return table.name == "threads" or any(_under_threads(parent) for parent in parents)


@proves("tenants.end")
def test_no_table_is_forgotten_when_a_tenant_ends() -> None:
    """A table with `tenant_id` hangs under threads by foreign keys, or is swept, after those that refer to it."""
    swept = [table for table in reversed(metadata.sorted_tables) if table in OWNED and not _under_threads(table)]
    assert sorted(SWEPT) == sorted(table.name for table in swept)
    for table in swept:
        for parent in {key.column.table for key in table.foreign_keys} & set(swept) - {table}:
            assert SWEPT.index(table.name) < SWEPT.index(parent.name)


@proves("tenants.end")
async def test_ending_a_tenant_deletes_all_of_its_rows_and_none_of_others(
    api: Api, harness: Harness, database_url: str, tmp_path: Path
) -> None:
    database = harness.database
    made, kept = await _create(api), await _create(api, "Other")
    engine = migrate.engine_for(database_url)
    async with engine.begin() as connection:
        for tenant in (made, kept):
            await fill_tables(connection, tenant["id"])
    await engine.dispose()
    # The run is still open, and its end is one more effect of the kind that is first in the list of kinds.
    await database.execute("UPDATE effects SET kind = 'title'")
    for tenant in (made, kept):
        await asyncio.to_thread(_write_file, tmp_path / tenant["id"] / "nova")
        await harness.redis.xadd(run_events(f"runs/{tenant['id']}"), {"a": "b"})
    before = await _counts(database, kept["id"])
    assert min(before.values()) > 0
    ended = await api.http.delete(f"/v1/tenants/{made['id']}", params={"confirm": "Acme"})
    assert (ended.status_code, ended.json()["state"]) == (202, "ending")
    async with api.client(made["key"]["key"]) as own:
        assert (await own.get("/v1/tenant")).status_code == 401
    refused = await api.http.patch(f"/v1/tenants/{made['id']}", json={"paused": False})
    assert refused.status_code == 409
    for _ in range(10):
        # Each tick is a process of its own: nothing but the database knows how far the last one came.
        await _retention(harness, tmp_path).tick()
    assert (await api.http.get(f"/v1/tenants/{made['id']}")).status_code == 404
    assert set((await _counts(database, made["id"])).values()) == {0}
    assert await _counts(database, kept["id"]) == before
    assert await asyncio.to_thread(os.listdir, tmp_path) == [kept["id"]]
    assert not await harness.redis.exists(run_events(f"runs/{made['id']}"))
    assert await harness.redis.exists(run_events(f"runs/{kept['id']}"))


@proves("tenants.end")
async def test_a_tenant_is_ended_by_its_name_only(api: Api) -> None:
    made = await _create(api)
    refused = await api.http.delete(f"/v1/tenants/{made['id']}", params={"confirm": "acme"})
    assert refused.status_code == 422
    assert "'Acme'" in refused.json()["detail"]
    assert (await api.http.delete(f"/v1/tenants/{made['id']}")).status_code == 422
    assert (await api.http.get(f"/v1/tenants/{made['id']}")).json()["state"] == "active"
    assert (await api.http.delete("/v1/tenants/ten_none", params={"confirm": "x"})).status_code == 404


@proves("tenants.end")
async def test_the_last_tenant_with_an_operator_stays(api: Api, database: Database) -> None:
    path, confirm = f"/v1/tenants/{api.tenant.id}", {"confirm": "test"}
    refused = await api.http.delete(path, params=confirm)
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    other = await make_tenant(database)
    assert (await api.http.delete(path, params=confirm)).status_code == 202
    async with api.client(other.key) as own:
        refused = await own.delete(f"/v1/tenants/{other.id}", params=confirm)
        assert refused.status_code == 409
