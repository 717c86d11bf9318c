"""Leases: one process of a client at a time, and the state that the next one continues from."""

from __future__ import annotations

import asyncio
from typing import Any

from httpx2 import Response

from nova_workers.contracts.http.leases import LeaseRequest
from nova_workers.ledger.database import Database
from nova_workers.ledger.tenants.leases import MAX_LEASES
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import Tenant
from tests.requirements import proves

PATH = "/v1/leases/channel:telegram:42"
_FILL = """
INSERT INTO leases (tenant_id, name, holder, fence, expires_at, state)
SELECT tenant_id, 'other-' || n, 'a', 1, now(), '{}' FROM leases, generate_series(1, :count::int) n
"""
_EXPIRE = "UPDATE leases SET expires_at = now() - interval '1 s'"


async def _put(api: Api, **given: Any) -> Response:
    return await api.http.put(PATH, json={"holder": "a", "ttl_s": 30, **given})


@proves("lease.one")
async def test_of_many_processes_one_acquires_a_lease(api: Api) -> None:
    answers = await asyncio.gather(*(_put(api, holder=f"process {number}") for number in range(8)))
    assert sorted(answer.status_code for answer in answers) == [200, *[409] * 7]
    (held,) = [answer.json() for answer in answers if answer.status_code == 200]
    refused = next(answer.json() for answer in answers if answer.status_code == 409)
    assert (held["fence"], held["state"], refused["code"]) == (1, {}, "conflict")
    assert held["holder"] in refused["detail"]


@proves("lease.one")
async def test_an_expired_lease_passes_on_with_its_state_and_refuses_its_former_holder(
    api: Api, database: Database
) -> None:
    first = (await _put(api)).json()
    await _put(api, fence=first["fence"], state={"open": [1]})
    await database.execute(_EXPIRE)
    # Expired, but not acquired by another: the holder keeps it.
    assert (await _put(api, fence=first["fence"])).json()["state"] == {"open": [1]}
    await database.execute(_EXPIRE)
    second = (await _put(api, holder="b")).json()
    assert (second["holder"], second["fence"], second["state"]) == ("b", 2, {"open": [1]})
    late = await _put(api, fence=first["fence"], state={"open": []})
    assert (late.status_code, late.json()["code"]) == (409, "conflict")
    assert (await _put(api, holder="b", fence=2)).json()["state"] == {"open": [1]}


@proves("audit.acts")
async def test_changes_of_a_leases_holder_are_in_the_audit_log_and_renewals_are_not(api: Api) -> None:
    held = (await _put(api)).json()
    proof = {name: held[name] for name in ("fence", "token") if name in held and name in LeaseRequest.model_fields}
    for _ in range(2):
        assert (await _put(api, **proof)).status_code == 200
    assert (await _put(api, holder="b")).status_code == 409
    assert (await _put(api, **proof, ttl_s=0)).status_code == 200
    said = (await api.http.get("/v1/audit", params={"target_kind": "lease"})).json()["items"]
    assert [(one["action"], one["target_id"], one["actor_id"]) for one in said] == [
        ("lease.released", "channel:telegram:42", api.tenant.key_id),
        ("lease.acquired", "channel:telegram:42", api.tenant.key_id),
    ]


async def test_a_released_lease_is_acquired_at_once(api: Api) -> None:
    held = (await _put(api)).json()
    assert (await _put(api, fence=held["fence"], ttl_s=0, state={"open": [2]})).status_code == 200
    assert (await _put(api, holder="b")).json()["state"] == {"open": [2]}


async def test_tenants_have_leases_of_their_own(api: Api, other_tenant: Tenant) -> None:
    held = (await _put(api)).json()
    async with api.client(other_tenant.key) as other:
        assert (await other.put(PATH, json={"holder": "b", "ttl_s": 30})).json()["fence"] == 1
        late = await other.put(PATH, json={"holder": "b", "ttl_s": 30, "fence": held["fence"] + 1})
        assert late.status_code == 409


async def test_a_state_without_a_fence_and_a_wrong_name_are_refused(api: Api) -> None:
    for given in ({"state": {}}, {"ttl_s": 0}, {"ttl_s": 601}, {"holder": ""}):
        assert (await _put(api, **given)).status_code == 422
    assert (await api.http.put("/v1/leases/A B", json={"holder": "a", "ttl_s": 1})).status_code == 422


async def test_a_tenant_has_a_bounded_number_of_leases(api: Api, database: Database) -> None:
    await _put(api)
    await database.execute(_FILL, count=MAX_LEASES - 1)

    refused = await api.http.put("/v1/leases/one-more", json={"holder": "a", "ttl_s": 30})
    assert (refused.status_code, refused.json()["code"]) == (409, "limit_exceeded")
    assert "one-more" in refused.json()["detail"]
    await database.execute(_EXPIRE)
    assert (await _put(api, holder="b")).json()["fence"] == 2
