"""Secrets of the keys of work orders: shown once, replaced without a gap, and sealed at rest."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from nova_workers.base.config import Settings
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api, Serve
from tests.integration.api.orders.conftest import MASTER_KEY, valid_order
from tests.integration.api.workspace.test_secrets import key
from tests.support.waiting import until

PATH = "/v1/work-order-secrets"


async def _admitted(api: Api, secret: str) -> bool:
    found = await api.state.services.order_door.admit(api.tenant.id, valid_order(api.tenant.id, secret))
    return hasattr(found, "order")


async def test_a_secret_is_shown_once_and_sealed_at_rest(api: Api, database: Database, order_secret: str) -> None:
    listed = await api.http.get(PATH)
    assert [each["expires_at"] for each in listed.json()["items"]] == [None]
    assert order_secret not in listed.text
    async with database.connection() as connection:
        stored = await connection.fetch("SELECT ciphertext FROM work_order_secrets")
    assert len(stored) == 1
    assert order_secret.encode() not in stored[0]["ciphertext"]


async def test_a_new_secret_replaces_the_one_before_which_stays_valid_for_a_time(api: Api, order_secret: str) -> None:
    second = (await api.http.post(PATH, json={})).json()["secret"]
    assert [each["expires_at"] is None for each in (await api.http.get(PATH)).json()["items"]] == [True, False]
    assert await _admitted(api, order_secret)
    assert await _admitted(api, second)
    third = (await api.http.post(PATH, json={"previous_valid_hours": 0})).json()["secret"]
    assert not await _admitted(api, order_secret)
    assert not await _admitted(api, second)
    assert await _admitted(api, third)


async def test_a_deleted_secret_is_refused_at_once(api: Api, order_secret: str) -> None:
    (only,) = (await api.http.get(PATH)).json()["items"]
    assert (await api.http.delete(f"{PATH}/{only['id']}")).status_code == 204
    assert (await api.http.delete(f"{PATH}/{only['id']}")).status_code == 404
    assert not await _admitted(api, order_secret)


async def test_secrets_are_encrypted_again_with_those_of_agents(
    api: Api, serve: Serve, settings: Settings, order_secret: str
) -> None:
    keys = [key("second"), MASTER_KEY]
    again = await serve(Settings.model_validate({**settings.model_dump(), "secrets": {"keys": keys}}))
    rotated = (await again.http.post("/v1/fleet/secrets/rotate")).json()
    assert (rotated["key_id"], rotated["rotated"], rotated["remaining"]) == ("second", 1, 0)
    assert await _admitted(again, order_secret)
    # A process without the new key can no longer open it, so that it refuses the order instead of failing.
    assert not await _admitted(api, order_secret)


async def test_without_a_master_key_there_are_no_secrets(serve: Serve, settings: Settings) -> None:
    api = await serve(settings)
    answer = await api.http.post(PATH, json={})
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")


async def test_the_api_reports_at_its_start_which_tenants_have_no_secret(
    api: Api, logs: list[MutableMapping[str, Any]]
) -> None:
    def reported() -> bool:
        return any(
            line["event"] == "work_orders.refused_without_secret" and api.tenant.id in line["tenants"] for line in logs
        )

    await until(reported)
