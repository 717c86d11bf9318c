"""What holds for every door: keys, scopes, tenants, limits, idempotency, hostile bodies, and errors in its own form."""

from __future__ import annotations

import asyncio

import pytest

from tests.integration.api.conftest import Api
from tests.integration.api.doors.door_clients import DoorClient
from tests.integration.api.manual_worker import ManualWorker, Tenant

NO_RUN = "run_01ARZ3NDEKTSV4RRFFQ69G5FAV"


async def thread_of(api: Api, run_id: str) -> str:
    """Return the thread of a run, by the native API."""
    return (await api.http.get(f"/v1/runs/{run_id}")).json()["thread_id"]


async def test_a_message_through_a_door_is_a_run_that_every_reader_sees(
    api: Api, worker: ManualWorker, door: DoorClient
) -> None:
    run_id = door.run_of(await door.send(api.http, "What is a fence?"))
    native = (await api.http.get(f"/v1/runs/{run_id}")).json()
    assert (native["status"], native["message"]) == ("queued", [{"type": "text", "text": "What is a fence?"}])
    await worker.play(native["thread_id"], "A number that grows.")
    assert door.text_of(await door.read(api.http, run_id)) == "A number that grows."


async def test_a_repeated_request_gets_the_run_of_the_first_and_another_one_is_refused(
    api: Api, door: DoorClient
) -> None:
    answers = await asyncio.gather(*(door.send(api.http, "once", request_id="an id / with spaces") for _ in range(3)))
    assert len({door.run_of(answer) for answer in answers}) == 1
    other = await door.send(api.http, "twice", request_id="an id / with spaces")
    assert (other.status_code, door.error_of(other)[0]) == (409, "idempotency_mismatch")


async def test_every_path_refuses_what_has_no_key_in_the_form_of_its_protocol(api: Api, door: DoorClient) -> None:
    async with api.client(None) as keyless, api.client("nova_wrong") as wrong:
        for client in (keyless, wrong):
            for each in door.paths:
                method, path = each.split(" ")
                answer = await client.request(method, path.format(run=door.name_of(NO_RUN)))
                assert answer.status_code == 401, each
                assert door.error_of(answer)[0]


async def test_a_key_without_the_scope_is_refused(api: Api, door: DoorClient) -> None:
    made = await api.http.post("/v1/keys", json={"name": "reader", "scopes": ["workspace"]})
    async with api.client(made.json()["key"]) as client:
        for each in door.paths:
            method, path = each.split(" ")
            body = {"model": "nova", "input": "hello"} if method == "POST" else None
            answer = await client.request(method, path.format(run=door.name_of(NO_RUN)), json=body)
            assert (answer.status_code, door.error_of(answer)[0]) == (403, "forbidden"), each


async def test_runs_and_agents_of_another_tenant_cannot_be_told_from_none(
    api: Api, other_tenant: Tenant, door: DoorClient
) -> None:
    run_id = door.run_of(await door.send(api.http))
    async with api.client(other_tenant.key) as stranger:
        answers = [[await read(stranger, each) for each in (run_id, NO_RUN)] for read in (door.read, door.cancel)]
    for theirs, none in answers:
        assert (theirs.status_code, none.status_code) == (404, 404)
        assert door.error_of(theirs) == door.error_of(none)
    unknown = await door.send(api.http, agent="no-such-agent")
    assert unknown.status_code == 404
    assert (await api.http.get(f"/v1/runs/{run_id}")).json()["status"] == "queued"


async def test_a_cancel_is_the_runs_and_is_in_the_audit_log(api: Api, door: DoorClient) -> None:
    run_id = door.run_of(await door.send(api.http))
    for _ in range(2):
        assert (await door.cancel(api.http, run_id)).status_code == 200
    assert (await api.http.get(f"/v1/runs/{run_id}")).json()["status"] == "canceled"
    audit = (await api.http.get("/v1/audit", params={"target": run_id})).json()["items"]
    assert audit, "the cancel is not in the audit log"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"\xff\xfe", 400),
        (b"[" * 500 + b"]" * 500, 400),
        (b"null", 422),
        (b"[]", 422),
        (b'{"model": "nova", "input": "a\\u0000b"}', 422),
        (b'{"model": "nova", "input": "\\ud800"}', 400),
        (b'{"model": "nova", "input": 1e999}', 400),
        (b'{"model": "nova", "input": {"a": 1}}', 422),
        (b'{"model": {"$ne": null}, "input": "hi"}', 422),
    ],
    ids=lambda value: str(value)[:30],
)
async def test_hostile_bodies_are_refused_in_the_form_of_the_protocol(
    api: Api, door: DoorClient, body: bytes, status: int
) -> None:
    path = next(each.split(" ")[1] for each in door.paths if each.startswith("POST"))
    answer = await api.http.post(path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == status, answer.text
    assert door.error_of(answer)[0]
    assert await api.count("runs") == 0


async def test_a_body_that_is_too_large_and_a_path_that_is_none_are_refused_in_the_form_of_the_protocol(
    api: Api, door: DoorClient
) -> None:
    path = next(each.split(" ")[1] for each in door.paths if each.startswith("POST"))
    prefix = "/".join(path.split("/")[:3])
    large = await api.http.post(
        path, content=b'"' + b"a" * 5_000_000 + b'"', headers={"Content-Type": "application/json"}
    )
    assert (large.status_code, door.error_of(large)[0]) == (413, "body_too_large")
    nothing = await api.http.get(f"{prefix}/no/such/path")
    assert (nothing.status_code, door.error_of(nothing)[0]) == (404, "not_found")
