"""Leases: one process of a client at a time, and the state that the next one continues from."""

from __future__ import annotations

import asyncio
from typing import Any

from dirty_equals import IsPartialDict, IsStr
from httpx2 import Response

from nova_workers.domain.keys.sql.leases import MAX_LEASES
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import ALL_SCOPES, Tenant, make_tenant
from tests.requirements import proves

PATH = "/v1/leases/channel:telegram:42"
_FILL = """
INSERT INTO leases (tenant_id, name, holder, fence, expires_at, state)
SELECT tenant_id, 'other-' || n, 'a', 1, now(), '{}' FROM leases, generate_series(1, :count::int) n
"""
_LONG_AGO = "UPDATE leases SET expires_at = now() - interval '2 h', next_try_at = now() - interval '2 h'"
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
    await _put(api, token=first["token"], state={"open": [1]})
    await database.execute(_EXPIRE)
    # Expired, but not acquired by another: the holder keeps it.
    assert (await _put(api, token=first["token"])).json()["state"] == {"open": [1]}
    await database.execute(_EXPIRE)
    second = (await _put(api, holder="b")).json()
    assert (second["holder"], second["fence"], second["state"]) == ("b", 2, {"open": [1]})
    late = await _put(api, token=first["token"], state={"open": []})
    assert (late.status_code, late.json()["code"]) == (409, "conflict")
    assert (await _put(api, holder="b", token=second["token"])).json()["state"] == {"open": [1]}


@proves("audit.acts")
async def test_changes_of_a_leases_holder_are_in_the_audit_log_and_renewals_are_not(api: Api) -> None:
    held = (await _put(api)).json()
    proof = {"token": held["token"]}
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
    assert (await _put(api, token=held["token"], ttl_s=0, state={"open": [2]})).status_code == 200
    assert (await _put(api, holder="b")).json()["state"] == {"open": [2]}


@proves("lease.token")
async def test_a_renewal_that_arrives_after_the_release_takes_nothing(api: Api) -> None:
    proof = {"token": (await _put(api)).json()["token"]}
    # Its answer may be lost, so that it is repeated.
    for _ in range(2):
        assert (await _put(api, **proof, ttl_s=0)).status_code == 200
    late = await _put(api, **proof, state={"open": [1]})
    assert (late.status_code, late.json()["code"]) == (409, "conflict")
    taken = (await _put(api, holder="b")).json()
    assert (taken["fence"], taken["state"]) == (2, {})
    assert (await _put(api, **proof, ttl_s=0)).status_code == 409


async def test_tenants_have_leases_of_their_own(api: Api, other_tenant: Tenant) -> None:
    held = (await _put(api)).json()
    async with api.client(other_tenant.key) as other:
        assert (await other.put(PATH, json={"holder": "b", "ttl_s": 30})).json()["fence"] == 1
        late = await other.put(PATH, json={"holder": "b", "ttl_s": 30, "token": held["token"]})
        assert late.status_code == 409


@proves("lease.token")
async def test_another_caller_of_the_tenant_cannot_take_a_lease_by_guessing(api: Api, database: Database) -> None:
    held = (await _put(api)).json()
    guesses = [{"fence": fence} for fence in (1, 2, 3)] + [{"token": token} for token in ("1", "", "a" * 43)]
    for given in guesses:
        refused = await _put(api, holder="thief", ttl_s=0, **given)
        assert refused.status_code in {409, 422}, refused.text
    renewed = await _put(api, token=held["token"], state={"open": [1]})
    assert (renewed.status_code, renewed.json()["token"]) == (200, None)
    # The ledger has a digest only.
    (row,) = await database.fetch("SELECT to_jsonb(l)::text AS kept FROM leases l")
    assert len(held["token"]) >= 43
    assert held["token"] not in row["kept"]


@proves("lease.token")
async def test_a_key_without_the_scope_of_channels_has_no_leases(api: Api, database: Database) -> None:
    others = [scope for scope in ALL_SCOPES if scope != "channels"]
    key = (await make_tenant(database, others, api.tenant.id)).key
    async with api.client(key) as narrow:
        refused = await narrow.put(PATH, json={"holder": "a", "ttl_s": 30})
    assert (refused.status_code, refused.json()["context"]["needed"]) == (403, "channels")


async def test_a_state_without_a_token_and_a_wrong_name_are_refused(api: Api) -> None:
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


async def test_why_the_holder_of_a_channel_pauses_is_listed_until_it_works(
    api: Api, other_tenant: Tenant, database: Database
) -> None:
    proof = {"token": (await _put(api)).json()["token"]}
    await api.http.put("/v1/leases/of-no-channel", json={"holder": "a", "ttl_s": 30})

    async def listed() -> Any:
        (channel,) = (await api.http.get("/v1/inbound-channels")).json()["items"]
        return channel

    works = {"name": "telegram:42", "holder": "a", "is_served": True, "error": None, "failing_since": None}
    works |= {"next_try_at": None, "retry_requested_at": None}
    assert await listed() == works
    pause = {"error": "Telegram: Unauthorized", "next_try_s": 60}
    await _put(api, **proof, pause=pause)
    first = await listed()
    assert first == {**works, "error": pause["error"], "failing_since": IsStr(), "next_try_at": IsStr()}
    await _put(api, **proof, pause={"error": "It does not answer", "next_try_s": 30})
    assert await listed() == IsPartialDict(error="It does not answer", failing_since=first["failing_since"])
    path = "/v1/inbound-channels/telegram:42/retry"
    async with api.client(other_tenant.key) as other:
        assert (await other.get("/v1/inbound-channels")).json()["items"] == []
        assert (await other.post(path)).status_code == 404
    assert (await api.http.post(path)).status_code == 204
    asked_at = (await listed())["retry_requested_at"]
    assert (await _put(api, **proof)).json()["retry_requested_at"] == asked_at
    assert await listed() == {**works, "retry_requested_at": asked_at}
    await _put(api, **proof, ttl_s=0, pause=pause)
    assert await listed() == IsPartialDict(is_served=False, error=pause["error"])
    # It was removed, it seems.
    await database.execute(
        "UPDATE leases SET expires_at = now() - interval '2 h', next_try_at = now() - interval '2 h'"
    )
    assert await listed() == {**works, "is_served": False, "retry_requested_at": asked_at}
    for wrong in ({"error": "two\nlines", "next_try_s": 1}, {"error": "x", "next_try_s": -1}, {"error": ""}):
        assert (await _put(api, **proof, pause=wrong)).status_code == 422
