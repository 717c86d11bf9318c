"""What holds for every door: keys, scopes, tenants, limits, idempotency, hostile bodies, and errors in its own form."""

from __future__ import annotations

import asyncio

import pytest

from tests.integration.api.conftest import Api
from tests.integration.api.doors.door_clients import DoorClient
from tests.integration.api.doors.every_door import each_door
from tests.integration.api.manual_worker import ManualWorker, Tenant

NO_RUN = "run_01ARZ3NDEKTSV4RRFFQ69G5FAV"


async def thread_of(api: Api, run_id: str) -> str:
    """Return the thread of a run, by the native API."""
    return (await api.http.get(f"/v1/runs/{run_id}")).json()["thread_id"]


async def sent(api: Api, door: DoorClient, text: str = "hello", request_id: str | None = None) -> str:
    """Send a message through a door, and return its run."""
    return await door.run_id_of(api.http, await door.post(api.http, door.message(text, request_id=request_id)))


@each_door()
async def test_a_message_through_a_door_is_a_run_that_every_reader_sees(
    api: Api, worker: ManualWorker, door: DoorClient
) -> None:
    request = door.message("What is a fence?", request_id="fence")
    run_id = await door.run_id_of(api.http, await door.post(api.http, request))
    native = (await api.http.get(f"/v1/runs/{run_id}")).json()
    assert (native["status"], native["message"]) == ("queued", [{"type": "text", "text": "What is a fence?"}])
    await worker.play(native["thread_id"], "A number that grows.")
    answer = await (door.read(api.http, run_id) if "read" in door.can else request.send(api.http))
    assert door.outcome_of(answer) == ("succeeded", "A number that grows.")


@each_door()
async def test_a_repeated_request_gets_the_run_of_the_first_and_another_one_is_refused(
    api: Api, door: DoorClient
) -> None:
    request = door.message("once", request_id="an id / with spaces")
    answers = await asyncio.gather(*(door.post(api.http, request) for _ in range(3)))
    assert len({await door.run_id_of(api.http, answer) for answer in answers}) == 1
    other = await door.post(api.http, door.message("twice", request_id="an id / with spaces"))
    assert door.refusal_of(other).is_like(409, "idempotency_mismatch")
    assert await api.count("runs") == 1


@each_door()
async def test_every_path_refuses_what_has_no_key_in_the_form_of_its_protocol(api: Api, door: DoorClient) -> None:
    async with api.client(None) as keyless, api.client("nova_wrong") as wrong:
        for client in (keyless, wrong):
            for request in door.requests(NO_RUN):
                answer = await request.send(client)
                assert answer.status_code == 401, request
                assert door.refusal_of(answer).is_like(401, "unauthenticated")


@each_door()
async def test_a_key_without_the_scope_is_refused(api: Api, door: DoorClient) -> None:
    made = await api.http.post("/v1/keys", json={"name": "reader", "scopes": ["workspace"]})
    async with api.client(made.json()["key"]) as client:
        for request in door.requests(NO_RUN):
            assert door.refusal_of(await request.send(client)).is_like(403, "forbidden"), request
    assert await api.count("runs") == 0


@each_door()
async def test_an_agent_of_another_tenant_cannot_be_told_from_none(
    api: Api, other_tenant: Tenant, door: DoorClient
) -> None:
    async with api.client(other_tenant.key) as stranger:
        made = await stranger.post("/v1/agents", json={"id": "secretary", "name": "Secretary"})
        assert made.is_success, made.text
    theirs, none = [door.refusal_of(await door.post(api.http, door.message(agent=a))) for a in ("secretary", "nobody")]
    assert theirs == none
    assert theirs.status in {404, None}


@each_door("read", "cancel")
async def test_a_run_of_another_tenant_cannot_be_told_from_none(
    api: Api, other_tenant: Tenant, door: DoorClient
) -> None:
    run_id = await sent(api, door)
    async with api.client(other_tenant.key) as stranger:
        for ask in (door.read, door.cancel):
            theirs, none = [door.refusal_of(await ask(stranger, each)) for each in (run_id, NO_RUN)]
            assert theirs == none
            assert theirs.is_like(404, "not_found")
    assert (await api.http.get(f"/v1/runs/{run_id}")).json()["status"] == "queued"


@each_door("cancel")
async def test_a_cancel_is_the_runs_and_is_in_the_audit_log(api: Api, door: DoorClient) -> None:
    run_id = await sent(api, door)
    for _ in range(2):
        assert (await door.cancel(api.http, run_id)).status_code == 200
    assert (await api.http.get(f"/v1/runs/{run_id}")).json()["status"] == "canceled"
    audit = (await api.http.get("/v1/audit", params={"target": run_id})).json()["items"]
    assert audit, "the cancel is not in the audit log"


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff\xfe", b"[" * 500 + b"]" * 500, b"null", b"[]", b'""'], ids=lambda value: str(value)[:20]
)
@each_door()
async def test_bodies_that_are_no_request_are_refused_in_the_form_of_the_protocol(
    api: Api, door: DoorClient, body: bytes
) -> None:
    refused = door.refusal_of(await door.message().send_bytes(api.http, body))
    assert refused.status in {400, 422, None}, refused
    assert await api.count("runs") == 0


@pytest.mark.parametrize(
    "text",
    [rb'"a\u0000b"', rb'"\ud800"', b"1e999", b"{}", b"[" * 90 + b"]" * 90, b"null", b'"' + b"a" * 1_000_001 + b'"'],
    ids=lambda value: str(value)[:20],
)
@each_door()
async def test_texts_that_no_run_can_have_are_refused_in_the_form_of_the_protocol(
    api: Api, door: DoorClient, text: bytes
) -> None:
    refused = door.refusal_of(await door.message().send_with(api.http, text))
    assert refused.status in {400, 422, None}, refused
    assert await api.count("runs") == 0


@each_door()
async def test_a_body_that_is_too_large_and_a_path_that_is_none_are_refused_in_the_form_of_the_protocol(
    api: Api, door: DoorClient
) -> None:
    large = await door.message().send_with(api.http, b'"' + b"a" * 5_000_000 + b'"')
    assert door.refusal_of(large).is_like(413, "body_too_large")
    nothing = await api.http.get(f"{door.prefix}/no/such/path")
    assert door.refusal_of(nothing).is_like(404, "not_found")
