"""The AG-UI door: a run of the protocol is a part of a run."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest
from redis.asyncio import Redis

from nova_workers.base.keys import run_events
from nova_workers.contracts import events as live
from nova_workers.contracts.engine import EngineError
from nova_workers.contracts.steps import ToolCall
from nova_workers.contracts.waits import AskApproval, AskUser, CallClientTool
from nova_workers.domain.waits.sql.suspend import NewWait
from tests.integration.api.conftest import Api
from tests.integration.api.doors.ag_ui_client import events_of, user
from tests.integration.api.doors.ag_ui_streams import DOOR, TOOLS, begun, history, kinds, said, stream
from tests.integration.api.doors.door_clients import DoorRequest
from tests.integration.api.manual_worker import ManualWorker
from tests.integration.api.shared_servers import SharedServers
from tests.requirements import proves


async def test_a_stream_has_text_reasoning_calls_results_and_steps(api: Api, worker: ManualWorker) -> None:
    request = DOOR.input([user("What is the weather?")])
    reading = asyncio.create_task(stream(api, request))
    run_id, turn = await begun(api, worker, request)
    await turn.emit(live.Reasoning(text="Hm. "), live.Token(text="Look"), live.Token(text="ing."))
    call = ToolCall("toolu_1", "look", {"at": 1}, 0, 0, "completed", ({"type": "text", "text": "rain"},))
    await turn.commit("Looking.", call)
    await turn.finish("It rains.")
    events = await reading
    assert kinds(events)[0] == "RUN_STARTED"
    assert events[0]["protocolVersion"] == "1.0"
    assert (events[0]["threadId"], events[0]["runId"]) == ("thread-1", "run-1")
    assert said(events) == "Looking.It rains."
    call_id = f"call_{run_id.removeprefix('run_')}_toolu_1"
    (args,) = [event for event in events if event["type"] == "TOOL_CALL_ARGS"]
    assert (args["toolCallId"], args["delta"]) == (call_id, '{"at":1}')
    (result,) = [event for event in events if event["type"] == "TOOL_CALL_RESULT"]
    assert (result["toolCallId"], result["content"]) == (call_id, "rain")
    steps = [(event["type"], event["stepName"]) for event in events if event["type"].startswith("STEP_")]
    assert steps == [
        ("STEP_STARTED", "step 1"),
        ("STEP_FINISHED", "step 1"),
        ("STEP_STARTED", "step 2"),
        ("STEP_FINISHED", "step 2"),
    ]
    assert events[-1]["outcome"] == {"type": "success"}
    assert events[-1]["usage"][0]["inputTokens"] > 0


@proves("doors.ag-ui")
async def test_the_same_run_id_gets_the_same_messages_from_the_start_also_once_redis_is_empty(
    api: Api, worker: ManualWorker, shared: SharedServers
) -> None:
    request = DOOR.input([user("hello")])
    run_id, turn = await begun(api, worker, request)
    await turn.emit(live.Token(text="Hel"))
    await turn.commit("Hello.", ToolCall("toolu_1", "look", {}, 0, 0, "failed", None, "no light"))
    await turn.finish("Bye.")
    whole = await stream(api, request)
    assert "no light" in {event.get("content") for event in whole}
    async with Redis.from_url(shared.settings.require_redis_url()) as redis:
        await redis.delete(run_events(run_id))
    assert history(await stream(api, request)) == history(whole)
    # A client that has a part of it already drops that, and gets it again.
    held = history(whole)[:1]
    again = await stream(api, DOOR.input([user("hello"), *held]))
    assert [message["id"] for message in again[1]["messages"]] == ["u1"]
    assert history(again[2:]) == history(whole)
    assert await api.count("runs") == 1


async def test_a_thread_of_the_clients_name_goes_on_and_one_of_ours_is_used_directly(
    api: Api, worker: ManualWorker
) -> None:
    first_id, turn = await begun(api, worker, DOOR.input([user("1")]))
    await turn.finish("one")
    first = (await api.http.get(f"/v1/runs/{first_id}")).json()
    answered = history(await stream(api, DOOR.input([user("1")])))
    messages = [user("1"), *answered, user("2", "u2")]
    second = DOOR.input(messages, run="run-2")
    second_id, turn = await begun(api, worker, second)
    assert turn.claim.thread_id == first["thread_id"]
    await turn.finish("two")
    events = await stream(api, second)
    assert "MESSAGES_SNAPSHOT" not in kinds(events), "the client has all of it"
    third = DOOR.input([user("3", "u3")], run="run-3", thread=first["thread_id"])
    _, turn = await begun(api, worker, third)
    assert turn.claim.thread_id == first["thread_id"]
    await turn.finish("three")
    (restated,) = [event for event in await stream(api, third) if event["type"] == "MESSAGES_SNAPSHOT"]
    assert [message["content"] for message in restated["messages"]] == ["1", "one", "2", "two", "3"]
    assert second_id != first_id
    other = await DOOR.input([user("1")], thread=first["thread_id"], agent="ghost", run="run-9").send(api.http)
    assert DOOR.refusal_of(other).is_like(404, "not_found")


async def test_a_request_without_messages_shows_the_conversation_and_follows_what_runs(
    api: Api, worker: ManualWorker
) -> None:
    empty = await stream(api, DOOR.input([], run="load-0"))
    assert kinds(empty) == ["RUN_STARTED", "RUN_FINISHED"]
    _, turn = await begun(api, worker, DOOR.input([user("1")]))
    await turn.finish("one")
    loaded = await stream(api, DOOR.input([], run="load-1"))
    assert kinds(loaded) == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
    assert [message["content"] for message in loaded[1]["messages"]] == ["1", "one"]
    assert await api.count("runs") == 1
    _, turn = await begun(api, worker, DOOR.input([*loaded[1]["messages"], user("2", "u2")], run="run-2"))
    join = DOOR.input([], run="load-2")
    async with asyncio.timeout(60), api.http.stream("POST", join.path, json=join.body) as response:
        lines = response.aiter_lines()
        assert "RUN_STARTED" in await anext(lines)
        await turn.finish("two")
        joined = [line async for line in lines if line]
    assert [line for line in joined if "TEXT_MESSAGE_CONTENT" in line and '"delta":"two"' in line]
    assert '"outcome":{"type":"success"}' in joined[-1]
    assert await api.count("runs") == 2


@proves("doors.ag-ui-answers")
async def test_calls_of_tools_of_the_front_end_end_the_run_and_the_next_one_goes_on(
    api: Api, worker: ManualWorker
) -> None:
    request = DOOR.input([user("Weather?")], tools=TOOLS)
    run_id, turn = await begun(api, worker, request)
    waits = [NewWait(f"toolu_{at}", CallClientTool(tool_name="ask", params={})) for at in (1, 2)]
    await turn.suspend("Looking.", *waits)
    events = await stream(api, request)
    calls = [event["toolCallId"] for event in events if event["type"] == "TOOL_CALL_START"]
    assert events[-1]["outcome"] == {"type": "success", "pendingToolCallIds": calls}
    assert len(calls) == 2
    messages = [user("Weather?"), *history(events)]
    results = [{"id": f"t{at}", "role": "tool", "toolCallId": call, "content": "rain"} for at, call in enumerate(calls)]
    partial = await DOOR.input([*messages, results[0]], run="run-2").send(api.http)
    assert DOOR.refusal_of(partial) == ("invalid_input", "messages", 422)
    blocked = await DOOR.input([*messages, user("Well?", "u2")], run="run-2").send(api.http)
    assert DOOR.refusal_of(blocked).is_like(409, "conflict")
    answering = DOOR.input([*messages, *results], run="run-2")
    assert (await DOOR.post(api.http, answering)).status_code == 200
    assert (await api.http.get(f"/v1/runs/{run_id}")).json()["status"] == "queued"
    turn = await worker.claim(turn.claim.thread_id)
    turn.step, turn.seq = 1, 3
    await turn.finish("It rains.")
    for _ in range(2):
        rest = await stream(api, answering)
        assert said(rest) == "It rains."
        assert "TOOL_CALL_RESULT" not in kinds(rest)
        assert "MESSAGES_SNAPSHOT" not in kinds(rest)
    assert history(await stream(api, request)) == history(events)
    assert await api.count("runs") == 1


@proves("doors.ag-ui-answers")
async def test_interrupts_are_questions_and_approvals_and_resume_answers_them(api: Api, worker: ManualWorker) -> None:
    request = DOOR.input([user("Clean up.")])
    run_id, turn = await begun(api, worker, request)
    asks = [
        NewWait("toolu_1", AskUser(question="Which one?", options=("a", "b"), only_options=True)),
        NewWait("toolu_2", AskApproval(tool_name="shell", params={"command": "rm"}, reason="It deletes.")),
    ]
    await turn.suspend("Hm.", *asks)
    events = await stream(api, request)
    outcome = events[-1]["outcome"]
    assert outcome["type"] == "interrupt"
    question, approval = outcome["interrupts"]
    assert (question["reason"], question["message"]) == ("input_required", "Which one?")
    assert question["responseSchema"]["properties"]["answer"]["enum"] == ["a", "b"]
    assert (approval["reason"], approval["message"]) == ("tool_call", "It deletes.")
    assert approval["toolCallId"] == f"call_{run_id.removeprefix('run_')}_toolu_2"
    messages = [user("Clean up."), *history(events)]

    def resumed(*entries: Any) -> DoorRequest:
        return DOOR.input(messages, run="run-2", resume=list(entries))

    first = {"interruptId": question["id"], "status": "resolved", "payload": {"answer": "b"}}
    second = {"interruptId": approval["id"], "status": "resolved", "payload": {"approved": True}}
    for entries in (
        [first],
        [first, {**second, "payload": {"approved": True, "editedArgs": {}}}],
        [{**first, "payload": 7}, second],
        [second, {**first, "payload": "c"}],
    ):
        refused = DOOR.refusal_of(await resumed(*entries).send(api.http))
        assert (refused.status, refused.code) == (422, "invalid_input")
        assert (refused.field or "").startswith("resume")
    unknown = {"interruptId": "int_of_another", "status": "cancelled"}
    assert (await DOOR.post(api.http, resumed(first, second, unknown))).status_code == 200
    run = (await api.http.get(f"/v1/runs/{run_id}")).json()
    assert run["status"] == "queued"
    audit = (await api.http.get("/v1/audit", params={"target_kind": "run"})).json()["items"]
    assert [(each["action"], each["actor_id"]) for each in audit] == [
        ("approval.granted", api.tenant.key_id),
        ("question.answered", api.tenant.key_id),
    ]
    answers = "SELECT array_agg(answer ->> 'by') FROM run_waits WHERE run_id = :run_id"
    assert await api.fetchval(answers, run_id=run_id) == ["test", "test"]
    turn = await worker.claim(turn.claim.thread_id)
    turn.step, turn.seq = 1, 3
    await turn.finish("Clean.")
    for _ in range(2):
        rest = await stream(api, resumed(first, second), goes_on=True)
        assert said(rest) == "Clean."
        assert rest[-1]["outcome"] == {"type": "success"}
    assert history(await stream(api, request)) == history(events)


async def test_a_message_after_results_ends_what_the_agent_would_have_made_of_them(
    api: Api, worker: ManualWorker
) -> None:
    request = DOOR.input([user("Show it.")], tools=TOOLS)
    run_id, turn = await begun(api, worker, request)
    await turn.suspend("", NewWait("toolu_1", CallClientTool(tool_name="ask", params={})))
    events = await stream(api, request)
    (call,) = events[-1]["outcome"]["pendingToolCallIds"]
    result = {"id": "t1", "role": "tool", "toolCallId": call, "content": "shown"}
    later = DOOR.input([user("Show it."), *history(events), result, user("Thanks.", "u2")], run="run-2")
    answer = await DOOR.post(api.http, later)
    thanks_id = await DOOR.run_id_of(api.http, answer)
    assert (await api.http.get(f"/v1/runs/{thanks_id}")).json()["message"][0]["text"] == "Thanks."
    assert (await api.http.get(f"/v1/runs/{run_id}")).json()["cancel_requested_at"] is not None
    turn = await worker.claim(turn.claim.thread_id)
    turn.step, turn.seq = 1, 3
    await turn.finish("", "canceled")
    await worker.play(turn.claim.thread_id, "Welcome.")
    for _ in range(2):
        assert said(await stream(api, later)) == "Welcome."
    assert await api.count("runs") == 2


async def test_a_question_with_options_that_is_abandoned_cancels_its_run(api: Api, worker: ManualWorker) -> None:
    request = DOOR.input([user("Clean up.")])
    run_id, turn = await begun(api, worker, request)
    await turn.suspend("", NewWait("toolu_1", AskUser(question="Which?", options=("a",), only_options=True)))
    (asked,) = (await stream(api, request))[-1]["outcome"]["interrupts"]
    entry = {"interruptId": asked["id"], "status": "cancelled"}
    abandon = DOOR.input([user("Clean up.")], run="run-2", resume=[entry])
    assert (await DOOR.post(api.http, abandon)).status_code == 200
    turn = await worker.claim(turn.claim.thread_id)
    turn.step, turn.seq = 1, 3
    await turn.finish("", "canceled")
    events = await stream(api, abandon)
    assert events[-1]["outcome"] == {"type": "cancelled"}
    assert (await api.http.get(f"/v1/runs/{run_id}")).json()["status"] == "canceled"


async def test_a_run_that_fails_ends_with_an_error_and_a_canceled_one_as_canceled(
    api: Api, worker: ManualWorker
) -> None:
    request = DOOR.input([user("hello")])
    _, turn = await begun(api, worker, request)
    await turn.emit(live.Token(text="Hel"))
    await turn.finish("", "failed", error=EngineError("model_error", "The model is gone.", retryable=False))
    events = await stream(api, request)
    assert (events[-1]["type"], events[-1]["code"], events[-1]["message"]) == (
        "RUN_ERROR",
        "model_error",
        "The model is gone.",
    )
    request = DOOR.input([user("hello")], run="run-2")
    run_id, turn = await begun(api, worker, request)
    await api.http.post(f"/v1/runs/{run_id}/cancel")
    await turn.finish("", "canceled")
    assert (await stream(api, request))[-1]["outcome"] == {"type": "cancelled"}


async def test_text_that_is_void_is_deleted_and_begins_anew(api: Api, worker: ManualWorker) -> None:
    request = DOOR.input([user("hello")])
    reading = asyncio.create_task(stream(api, request))
    _, turn = await begun(api, worker, request)
    await turn.emit(live.Reasoning(text="Hm."), live.Token(text="Wrong"))
    await turn.emit(live.Restart())
    await turn.emit(live.Token(text="Right"))
    await turn.finish("Right")
    events = await reading
    snapshots = [event for event in events if event["type"] == "MESSAGES_SNAPSHOT"]
    after = (
        events[max(at for at, event in enumerate(events) if event["type"] == "MESSAGES_SNAPSHOT") :]
        if snapshots
        else events
    )
    assert said(after) == "Right"
    for snapshot in snapshots:
        assert [message["id"] for message in snapshot["messages"]] == ["u1"]


async def test_context_props_and_media_reach_the_agent_and_what_it_cannot_use_is_named(api: Api) -> None:
    text = base64.b64encode(b"a,b").decode()
    parts = [
        {"type": "text", "text": "Look."},
        {"type": "image", "source": {"type": "url", "value": "https://example.com/a.png"}},
        {"type": "document", "source": {"type": "data", "value": text, "mimeType": "text/csv"}},
        {"type": "audio", "source": {"type": "data", "value": "AAAA", "mimeType": "audio/wav"}},
        {"type": "image", "source": {"type": "file", "value": "file-1"}},
        {"type": "hologram", "source": {"type": "url", "value": "x"}},
    ]
    messages = [{"id": "s1", "role": "system", "content": "Be brief."}, user(parts), {"id": "x", "role": "oracle"}]
    request = DOOR.input(
        messages,
        context=[{"description": "The page", "value": "Orders"}],
        forwardedProps={"locale": "nb"},
        tools=TOOLS,
        novelty=1,
    )
    answer = await DOOR.post(api.http, request)
    (started,) = events_of(answer.content)
    assert started["metadata"] == {"nova": {"leftOut": ["messages.1.content.3", "messages.1.content.4"]}}
    run = (await api.http.get(f"/v1/runs/{await DOOR.run_id_of(api.http, answer)}")).json()
    assert [block["type"] for block in run["message"]] == ["text", "image", "document"]
    assert run["client_tools"] == ["ask"]
    for part in ("Be brief.", "The page:\nOrders", '{"locale":"nb"}'):
        assert part in run["instructions"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"messages": [user("")]}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [user(7)]}, "messages.0.user.content.str"),
        ({"messages": [{"id": "a", "role": "tool", "content": "x"}]}, "messages.0.tool.toolCallId"),
        ({"runId": ""}, "runId"),
        ({"threadId": 7}, "threadId"),
        ({"tools": [{"name": "no spaces", "description": ""}]}, "tools.0.name"),
        ({"tools": [TOOLS[0], TOOLS[0]]}, "tools.1.name"),
        ({"context": [{"description": "all", "value": "a" * 60_000}]}, "context"),
        ({"state": {"a": "b" * 70_000}}, "state"),
        ({"resume": [{"interruptId": "a", "status": "maybe"}]}, "resume.0.status"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_what_is_malformed_is_refused_before_the_run_with_its_field(
    api: Api, fields: dict[str, Any], field: str
) -> None:
    request = DOOR.input([user("hello")])
    body = {**request.body, **fields}
    answer = await DoorRequest("POST", request.path, body).send(api.http)
    refused = DOOR.refusal_of(answer)
    assert (refused.status, refused.code) == (422, "invalid_input"), answer.text
    assert refused.field == field, answer.text
    assert await api.count("runs") == 0
