"""Secrets through the API: values are written and never returned."""

from __future__ import annotations

import os
from base64 import b64encode
from typing import Any

import pytest

from nova_workers.base.config import Settings
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api, Serve
from tests.integration.api.manual_worker import Tenant, make_tenant
from tests.requirements import proves

VALUE = "correct horse battery"


def key(name: str) -> str:
    return f"{name}:{b64encode(os.urandom(32)).decode()}"


FIRST, SECOND = key("first"), key("second")


def with_keys(settings: Settings, *keys: str) -> Settings:
    return Settings.model_validate({**settings.model_dump(), "secrets": {"keys": keys}})


@pytest.fixture
async def api(serve: Serve, settings: Settings) -> Api:
    return await serve(with_keys(settings, FIRST))


@proves("secrets.write-only")
async def test_a_secret_is_set_listed_replaced_and_deleted_and_never_shown(api: Api) -> None:
    made = await api.http.put("/v1/secrets/TOKEN", json={"value": VALUE, "description": "for tests"})
    assert made.status_code == 200, made.text
    replaced = await api.http.put("/v1/secrets/TOKEN", json={"value": f"{VALUE} 2"})
    listed = await api.http.get("/v1/secrets")
    assert listed.json() == {"items": [replaced.json()], "next_cursor": None}
    assert {key: made.json()[key] for key in ("name", "description", "key_id", "updated_by")} == {
        "name": "TOKEN",
        "description": "for tests",
        "key_id": "first",
        "updated_by": "person",
    }
    assert (await api.http.get("/v1/secrets/TOKEN")).status_code == 405
    assert (await api.http.delete("/v1/secrets/TOKEN")).status_code == 204
    assert (await api.http.delete("/v1/secrets/TOKEN")).status_code == 404
    for answer in (made, replaced, listed):
        assert VALUE not in answer.text


async def test_lists_come_in_pages_by_name(api: Api) -> None:
    for name in ("B", "A_2", "A1", "C"):
        await api.http.put(f"/v1/secrets/{name}", json={"value": VALUE})
    names: list[str] = []
    cursor: str | None = None
    while True:
        page = (await api.http.get("/v1/secrets", params={"limit": 2, **({"cursor": cursor} if cursor else {})})).json()
        names += [item["name"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert names == ["A1", "A_2", "B", "C"]


@pytest.mark.parametrize(
    ("name", "body", "status", "field"),
    [
        ("token", {"value": VALUE}, 422, "name"),
        ("A" * 65, {"value": VALUE}, 422, "name"),
        ("TOK%00EN", {"value": VALUE}, 422, "name"),
        ("TOKEN", {"value": "abcde"}, 422, "value"),
        ("TOKEN", {"value": ""}, 422, "value"),
        ("TOKEN", {"value": "x" * 65_537}, 422, "value"),
        ("TOKEN", {"value": "ü" * 40_000}, 422, "value"),
        ("TOKEN", {"value": f"{VALUE}\x00"}, 422, "value"),
        ("TOKEN", {"value": 123_456_789}, 422, "value"),
        ("TOKEN", {"value": [VALUE]}, 422, "value"),
        ("TOKEN", {}, 422, "value"),
        ("TOKEN", {"value": VALUE, "description": "x" * 501}, 422, "description"),
        ("TOKEN", {"value": VALUE, "valeu": VALUE}, 422, "valeu"),
    ],
)
async def test_bad_input_is_refused_by_field_and_not_sent_back(
    api: Api, name: str, body: dict[str, Any], status: int, field: str
) -> None:
    answer = await api.http.put(f"/v1/secrets/{name}", json=body)
    assert answer.status_code == status, answer.text
    assert [error["field"] for error in answer.json()["errors"]] == [field]
    assert VALUE not in answer.text
    assert "123456789" not in answer.text
    assert (await api.http.get("/v1/secrets")).json()["items"] == []


async def test_a_key_needs_the_scope(api: Api, database: Database, tenant: Tenant) -> None:
    runs = (await make_tenant(database, ["runs", "agents", "workspace", "keys"], tenant.id)).key
    secrets = (await make_tenant(database, ["secrets"], tenant.id)).key
    async with api.client(runs) as http:
        assert (await http.put("/v1/secrets/TOKEN", json={"value": VALUE})).status_code == 403
        assert (await http.get("/v1/secrets")).status_code == 403
        assert (await http.delete("/v1/secrets/TOKEN")).status_code == 403
    async with api.client(secrets) as http:
        assert (await http.put("/v1/secrets/TOKEN", json={"value": VALUE})).status_code == 200
        assert (await http.post("/v1/fleet/secrets/rotate")).status_code == 403


async def test_tenants_have_secrets_of_their_own(api: Api, other_tenant: Tenant) -> None:
    await api.http.put("/v1/secrets/TOKEN", json={"value": VALUE})
    async with api.client(other_tenant.key) as http:
        assert (await http.get("/v1/secrets")).json()["items"] == []
        assert (await http.delete("/v1/secrets/TOKEN")).status_code == 404
    assert len((await api.http.get("/v1/secrets")).json()["items"]) == 1


async def test_an_operator_rotates_the_master_key_of_all_tenants(
    serve: Serve, api: Api, settings: Settings, other_tenant: Tenant
) -> None:
    await api.http.put("/v1/secrets/TOKEN", json={"value": VALUE})
    async with api.client(other_tenant.key) as http:
        await http.put("/v1/secrets/TOKEN", json={"value": VALUE})
    newer = await serve(with_keys(settings, SECOND, FIRST))
    for rotated in (2, 0):
        answer = await newer.http.post("/v1/fleet/secrets/rotate")
        assert answer.json() == {"key_id": "second", "rotated": rotated, "remaining": 0, "unreadable": 0}
    assert [item["key_id"] for item in (await newer.http.get("/v1/secrets")).json()["items"]] == ["second"]


async def test_a_fleet_without_a_master_key_refuses_secrets_with_the_reason(serve: Serve, settings: Settings) -> None:
    api = await serve(settings)
    for answer in (
        await api.http.put("/v1/secrets/TOKEN", json={"value": VALUE}),
        await api.http.post("/v1/fleet/secrets/rotate"),
    ):
        assert answer.status_code == 409
        assert "NOVA_SECRETS__KEYS" in answer.json()["detail"]
    assert (await api.http.get("/v1/secrets")).json()["items"] == []
