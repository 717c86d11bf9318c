"""What holds for every door: keys, scopes, tenants, limits, idempotency, hostile bodies, and errors in its own form."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace

import pytest
from redis.asyncio import Redis

from nova_workers.base.keys import run_events
from nova_workers.contracts import events as live
from nova_workers.contracts.content import text_block
from nova_workers.contracts.engine import EngineError
from nova_workers.contracts.steps import ToolCall
from nova_workers.contracts.waits import AskUser
from nova_workers.domain.waits.sql.suspend import NewWait
from tests.integration.api.conftest import Api
from tests.integration.api.doors.door_clients import DoorClient
from tests.integration.api.doors.every_door import each_door
from tests.integration.api.manual_worker import ManualWorker, Tenant
from tests.integration.api.shared_servers import SharedServers
from tests.requirements import proves

NO_RUN = "run_01ARZ3NDEKTSV4RRFFQ69G5FAV"
QUESTION = NewWait("call_0", AskUser(question="Which colour?"))


async def thread_of(api: Api, run_id: str) -> str:
    """Return the thread of a run, by the native API."""
    return (await api.http.get(f"/v1/runs/{run_id}")).json()["thread_id"]


async def sent(api: Api, door: DoorClient, text: str = "hello", request_id: str | None = None) -> str:
    """Send a message through a door, and return its run."""
    return await door.run_id_of(api.http, await door.post(api.http, door.message(text, request_id=request_id)))


@proves("doors.contract")
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
    api: Api, door: DoorClient, other_tenant: Tenant
) -> None:
    request = door.message("once", request_id="an id / with spaces")
    answers = await asyncio.gather(*(door.post(api.http, request) for _ in range(3)))
    assert len({await door.run_id_of(api.http, answer) for answer in answers}) == 1
    other = await door.post(api.http, door.message("twice", request_id="an id / with spaces"))
    assert door.refusal_of(other).is_like(409, "idempotency_mismatch")
    assert await api.count("runs") == 1
    async with api.client(other_tenant.key) as stranger:
        theirs = await door.run_id_of(stranger, await door.post(stranger, request))
    assert theirs != await door.run_id_of(api.http, answers[0])


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


@each_door("answer")
async def test_an_answer_is_the_runs_and_is_in_the_audit_log(api: Api, worker: ManualWorker, door: DoorClient) -> None:
    run_id = await sent(api, door)
    turn = await worker.claim(await thread_of(api, run_id))
    await turn.suspend("", QUESTION)
    [wait] = (await api.http.get(f"/v1/runs/{run_id}")).json()["waits"]
    answered = await door.answer(api.http, run_id, wait["id"], "blue")
    assert answered.status_code == 200, answered.text
    assert (await api.http.get(f"/v1/runs/{run_id}")).json()["status"] == "queued"
    target = f"{run_id}/{wait['id']}"
    audit = (await api.http.get("/v1/audit", params={"target": target})).json()["items"]
    assert [record["action"] for record in audit] == ["question.answered"]


@each_door()
async def test_agents_that_are_gone_are_refused(api: Api, door: DoorClient) -> None:
    for agent_id in ("clerk", "writer"):
        await api.http.post("/v1/agents", json={"id": agent_id, "name": agent_id})
    assert (await api.http.delete("/v1/agents/clerk")).is_success
    assert (await api.http.post("/v1/agents/writer/rename", json={"to": "author"})).is_success
    deleted, renamed = [door.refusal_of(await door.post(api.http, door.message(agent=a))) for a in ("clerk", "writer")]
    assert deleted.is_like(410, "gone")
    assert renamed.is_like(410, "agent_renamed")
    assert await api.count("runs") == 0


@each_door("continue")
async def test_threads_that_are_gone_or_of_another_tenant_are_refused(
    api: Api, door: DoorClient, other_tenant: Tenant
) -> None:
    gone, other = await api.thread(), await api.thread()
    assert (await api.http.delete(f"/v1/threads/{gone}")).is_success
    assert door.refusal_of(await door.post(api.http, door.message(thread_id=gone))).is_like(410, "gone")
    async with api.client(other_tenant.key) as stranger:
        theirs = await door.post(stranger, door.message(thread_id=other))
        none = await door.post(stranger, door.message(thread_id="thr_01ARZ3NDEKTSV4RRFFQ69G5FAV"))
    assert door.refusal_of(theirs) == door.refusal_of(none)
    assert door.refusal_of(none).is_like(404, "not_found")
    assert await api.count("runs") == 0


@each_door("continue")
async def test_a_message_continues_a_thread(api: Api, worker: ManualWorker, door: DoorClient) -> None:
    thread_id = await api.thread()
    answer = await door.post(api.http, door.message("More.", thread_id=thread_id))
    run_id = await door.run_id_of(api.http, answer)
    assert await thread_of(api, run_id) == thread_id


@each_door("read")
async def test_what_became_of_a_run_is_shown(api: Api, worker: ManualWorker, door: DoorClient) -> None:
    waits, stops, fails = [await sent(api, door) for _ in range(3)]
    turn = await worker.claim(await thread_of(api, waits))
    await turn.suspend("I must ask.", QUESTION)
    asked = door.outcome_of(await door.read(api.http, waits))
    # A protocol without questions may show one as the answer, or that the run goes on.
    assert asked.status in {"waiting", "working"} or "Which colour?" in asked.text

    turn = await worker.claim(await thread_of(api, stops))
    assert (await api.http.post(f"/v1/runs/{stops}/cancel")).is_success
    await turn.finish("Partial.", "canceled")
    assert door.outcome_of(await door.read(api.http, stops)).status == "canceled"

    spent = EngineError("budget_exceeded", "The tenant's budget of the day is spent.", retryable=False)
    turn = await worker.claim(await thread_of(api, fails))
    await turn.finish("", "failed", error=spent)
    assert door.outcome_of(await door.read(api.http, fails)).status == "failed"


@proves("doors.joined")
@each_door("read")
async def test_a_message_that_joined_another_run_shows_that_runs_answer(
    api: Api, worker: ManualWorker, door: DoorClient
) -> None:
    thread_id = await api.thread()
    active = await api.run(thread_id, "Paint the wall.")
    turn = await worker.claim(thread_id)
    joined = await api.run(thread_id, "Blue, please.", on_busy="steer")
    streams = "resume" in door.can
    following = asyncio.create_task(door.events(api.http, joined)) if streams else None
    await turn.commit("I begin.")
    # The step has the message that joined, too.
    turn.seq += 1
    assert (await api.http.get(f"/v1/runs/{joined}")).json()["merged_into"] == active
    assert door.outcome_of(await door.read(api.http, joined)).status == "working"
    await turn.emit(live.Token(text="The wall is blue."))
    await turn.finish("The wall is blue.")
    assert door.outcome_of(await door.read(api.http, joined)) == ("succeeded", "The wall is blue.")
    if following is not None:
        # A stream goes on with what answers the message, whether it began before or after it joined.
        whole = await following
        later = await door.events(api.http, joined)
        assert later[-1] == whole[-1]
        for said in map(str, (whole, later)):
            assert "blue." in said
        for at, event in enumerate(later[:-1]):
            if event.id is not None and at > 1:
                rest = await door.events(api.http, joined, after=event.id)
                assert rest[-len(later) + at + 1 :] == later[at + 1 :], event


@proves("doors.joined")
@each_door("cancel")
async def test_a_message_that_joined_another_run_is_canceled_with_it(
    api: Api, worker: ManualWorker, door: DoorClient
) -> None:
    thread_id = await api.thread()
    active = await api.run(thread_id, "Paint the wall.")
    turn = await worker.claim(thread_id)
    joined = await api.run(thread_id, "Blue, please.", on_busy="steer")
    await turn.commit("I begin.")
    turn.seq += 1
    await turn.suspend("I must ask.", QUESTION)
    assert (await door.cancel(api.http, joined)).is_success
    assert (await api.http.get(f"/v1/runs/{active}")).json()["cancel_requested_at"] is not None


@each_door("resume")
async def test_a_client_that_resumes_after_any_event_gets_the_rest(
    api: Api, worker: ManualWorker, door: DoorClient, shared: SharedServers
) -> None:
    run_id = await sent(api, door)
    turn = await worker.claim(await thread_of(api, run_id))
    await turn.emit(live.Token(text="Look"))
    await turn.emit(live.Token(text="ing."))
    await turn.commit("Looking.", ToolCall("toolu_1", "look", {"at": 1}, 0, 0, "completed", (text_block("done"),)))
    await turn.emit(live.Token(text="Found."))
    await turn.finish("Found.")
    whole = await door.events(api.http, run_id)
    async with Redis.from_url(shared.settings.require_redis_url()) as redis:
        for _ in range(2):
            for at, event in enumerate(whole[:-1]):
                if event.id is not None:
                    rest = await door.events(api.http, run_id, after=event.id)
                    # Once the live events are gone, committed texts come whole.
                    assert rest[-1] == whole[-1], event
                    if at > 1 and await redis.exists(run_events(run_id)):
                        assert rest[-len(whole) + at + 1 :] == whole[at + 1 :], event
            await redis.delete(run_events(run_id))


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
async def test_a_field_that_the_protocol_has_not_is_passed_over_or_named(api: Api, door: DoorClient) -> None:
    request = door.message()
    answer = await door.post(api.http, replace(request, body={**request.body, "nova_unknown": {"a": 1}}))
    if answer.status_code >= 400:
        assert door.refusal_of(answer).field is not None
    assert await api.count("runs") == int(answer.status_code < 400)


@each_door()
async def test_an_id_that_cannot_be_stored_is_refused_in_the_form_of_the_protocol(api: Api, door: DoorClient) -> None:
    for request in door.requests(NO_RUN):
        path = re.sub(r"(nova|01ARZ3\w+)(?=/|\?|$)", "a%00b", request.path)
        if path != request.path:
            answer = await replace(request, path=path).send(api.http)
            # Where the path names the addressee of a message, it may be a field of it.
            assert door.refusal_of(answer).code in {"not_found", "invalid_input"}, (path, answer.text)


@each_door()
async def test_a_body_that_is_too_large_and_a_path_that_is_none_are_refused_in_the_form_of_the_protocol(
    api: Api, door: DoorClient
) -> None:
    large = await door.message().send_with(api.http, b'"' + b"a" * 5_000_000 + b'"')
    assert door.refusal_of(large).is_like(413, "body_too_large")
    nothing = await api.http.get(f"{door.prefix}/no/such/path")
    assert door.refusal_of(nothing).is_like(404, "not_found")
