"""People of channels who may write by a code: asked for by the channel, confirmed by an operator."""

from __future__ import annotations

from typing import Any

from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import Tenant
from tests.requirements import proves

ASKED = {"channel": "telegram", "sender": "666", "name": "Mallory"}
_AGE = "UPDATE channel_pairings SET code_expires_at = now() - interval '1 s', asked_at = now() - interval '1 h'"


async def _ask(api: Api, **changes: Any) -> dict[str, Any]:
    answer = await api.http.post("/v1/pairings", json=ASKED | changes)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def _confirm(api: Api, code: str) -> int:
    return (await api.http.post("/v1/pairings/confirm", json={"code": code})).status_code


@proves("security.telegram")
async def test_a_code_is_given_once_confirms_one_person_and_expires(api: Api, database: Database) -> None:
    assert await _ask(api, ask=False) == {"paired": False, "code": None, "code_expires_at": None}
    assert (await api.http.get("/v1/pairings")).json()["items"] == []
    first = await _ask(api)
    assert len(first["code"]) == 8
    assert (await _ask(api))["code"] is None
    await database.execute(_AGE)
    assert await _confirm(api, first["code"]) == 404
    assert (await api.http.get("/v1/pairings")).json()["items"] == []
    second = await _ask(api)
    other = await _ask(api, sender="667")
    assert await _confirm(api, f" {second['code'][:4]}-{second['code'][4:].lower()}") == 200
    await database.execute(_AGE)
    # Repeated after its answer was lost.
    assert await _confirm(api, second["code"]) == 200
    assert (await _ask(api))["paired"]
    assert not (await _ask(api, channel="telegram-secretary", ask=False))["paired"]
    assert await _confirm(api, other["code"]) == 404
    (paired,) = (await api.http.get("/v1/pairings")).json()["items"]
    assert (await api.http.delete(f"/v1/pairings/{paired['id']}")).status_code == 204
    assert not (await _ask(api, ask=False))["paired"]
    # Codes that expired are deleted when the next one is asked for.
    await _ask(api, sender="668")
    assert [row["sender"] for row in await database.fetch("SELECT sender FROM channel_pairings")] == ["668"]


@proves("security.telegram")
async def test_strangers_have_a_bounded_number_of_codes(api: Api) -> None:
    codes = [(await _ask(api, sender=str(number)))["code"] for number in range(102)]
    assert [code is None for code in codes] == [False] * 100 + [True] * 2


async def test_a_code_is_of_its_tenant(api: Api, other_tenant: Tenant) -> None:
    code = (await _ask(api))["code"]
    async with api.client(other_tenant.key) as other:
        assert (await other.post("/v1/pairings/confirm", json={"code": code})).status_code == 404
    assert await _confirm(api, code) == 200
