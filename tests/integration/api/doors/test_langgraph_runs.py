"""What LangGraph's SDK calls of runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient
from langgraph_sdk.errors import APIStatusError, ConflictError, UnprocessableEntityError
from redis.asyncio import Redis

from nova_workers.base.keys import run_events
from nova_workers.contracts import events as live
from nova_workers.contracts.content import text_block
from nova_workers.contracts.engine import EngineError
from nova_workers.contracts.steps import ToolCall
from nova_workers.contracts.waits import AskApproval, AskUser
from nova_workers.domain.waits.sql.suspend import NewWait
from tests.integration.api.conftest import Api
from tests.integration.api.doors.door_clients import DoorEvent
from tests.integration.api.doors.langgraph_client import LangGraphDoor, events_of
from tests.integration.api.doors.test_contract import thread_of
from tests.integration.api.manual_worker import ManualWorker
from tests.integration.api.shared_servers import SharedServers
from tests.requirements import proves
from tests.support.waiting import until

HELLO: Any = {"messages": [{"role": "user", "content": "hello"}]}
LOOK = ToolCall("toolu_1", "look", {"at": 1}, 0, 0, "completed", (text_block("done"),))


@pytest.fixture
async def sdk(api: Api) -> AsyncGenerator[LangGraphClient]:
    """The SDK with the tenant's key."""
    async with get_client(url=f"{api.url}/langgraph", api_key=api.tenant.key) as client:
        yield client


async def parts_of(stream: Any) -> list[tuple[str, Any]]:
    """Return the events of a stream."""
    return [(part.event, part.data) async for part in stream]


async def _is_resumed(sdk: LangGraphClient, thread_id: str, run_id: str) -> bool:
    return (await sdk.runs.get(thread_id, run_id))["status"] != "interrupted"


async def _is_to_stop(api: Api, run_id: str) -> bool:
    return (await api.http.get(f"/v1/runs/{run_id}")).json()["cancel_requested_at"] is not None


async def test_the_first_run_gives_a_thread_its_agent_and_later_ones_keep_it(api: Api, sdk: LangGraphClient) -> None:
    assert (await api.http.post("/v1/agents", json={"id": "painter", "name": "Painter"})).is_success
    own = str(uuid4())
    await sdk.threads.create(thread_id=own)
    run = await sdk.runs.create(own, "painter", input=HELLO, metadata={"a": 1})
    assert (run["thread_id"], run["assistant_id"], run["status"]) == (own, "painter", "pending")
    with pytest.raises(UnprocessableEntityError, match="painter"):
        await sdk.runs.create(own, "nova", input=HELLO)
    second = await sdk.runs.create(own, "painter", input=HELLO)
    assert [each["run_id"] for each in await sdk.runs.list(own)] == [second["run_id"], run["run_id"]]
    assert await sdk.runs.list(own, status="success") == []
    with pytest.raises(ConflictError):
        await sdk.runs.create(own, "painter", input=HELLO, multitask_strategy="reject")
    await sdk.runs.cancel(own, second["run_id"])
    assert (await sdk.runs.get(own, second["run_id"]))["status"] == "interrupted"
    made = await sdk.runs.create(str(uuid4()), "nova", input=HELLO, if_not_exists="create")
    assert made["status"] == "pending"


async def test_a_client_that_waits_gets_the_values(api: Api, sdk: LangGraphClient, worker: ManualWorker) -> None:
    thread_id = (await sdk.threads.create())["thread_id"]
    waiting = asyncio.create_task(sdk.runs.wait(thread_id, "nova", input=HELLO))
    await worker.play(thread_id, "Hello.")
    values: Any = await waiting
    assert [(each["type"], each["content"]) for each in values["messages"]] == [("human", "hello"), ("ai", "Hello.")]
    [run] = await sdk.runs.list(thread_id)
    assert await sdk.runs.join(thread_id, run["run_id"]) == values

    failing = await sdk.runs.create(thread_id, "nova", input=HELLO)
    turn = await worker.claim(thread_id)
    spent = EngineError("budget_exceeded", "The budget is spent.", retryable=False)
    await turn.finish("", "failed", error=spent)
    joined: Any = await sdk.runs.join(thread_id, failing["run_id"])
    assert joined["__error__"]["message"] == "The budget is spent."


async def test_a_cancel_that_waits_responds_when_the_run_has_stopped(
    api: Api, sdk: LangGraphClient, worker: ManualWorker
) -> None:
    thread_id = (await sdk.threads.create())["thread_id"]
    run = await sdk.runs.create(thread_id, "nova", input=HELLO)
    turn = await worker.claim(thread_id)
    canceling = asyncio.create_task(sdk.runs.cancel(thread_id, run["run_id"], wait=True))
    await until(partial(_is_to_stop, api, run["run_id"]), "the request to cancel")
    assert not canceling.done()
    await turn.finish("So far.", "canceled")
    await canceling
    assert (await sdk.runs.get(thread_id, run["run_id"]))["status"] == "interrupted"


async def test_an_interrupting_run_stops_the_active_one_and_goes_next(
    api: Api, sdk: LangGraphClient, worker: ManualWorker
) -> None:
    thread_id = (await sdk.threads.create())["thread_id"]
    active = await sdk.runs.create(thread_id, "nova", input=HELLO)
    queued = await sdk.runs.create(thread_id, "nova", input=HELLO)
    turn = await worker.claim(thread_id)
    urgent = await sdk.runs.create(thread_id, "nova", input=HELLO, multitask_strategy="interrupt")
    await until(partial(_is_to_stop, api, active["run_id"]), "the request to cancel")
    await turn.finish("So far.", "canceled")
    await worker.play(thread_id, "Now.")
    states = {run["run_id"]: run["status"] for run in await sdk.runs.list(thread_id)}
    assert states == {active["run_id"]: "interrupted", urgent["run_id"]: "success", queued["run_id"]: "pending"}
    assert [each["content"] for each in (await sdk.threads.get_state(thread_id))["values"]["messages"]][-1] == "Now."  # pyright: ignore[reportArgumentType, reportCallIssue]


async def test_a_stream_shows_texts_calls_and_values(api: Api, sdk: LangGraphClient, worker: ManualWorker) -> None:
    thread_id = (await sdk.threads.create())["thread_id"]
    run = await sdk.runs.create(thread_id, "nova", input=HELLO)
    turn = await worker.claim(thread_id)
    await turn.emit(live.Token(text="Look"), live.Token(text="ing."))
    await turn.commit("Looking.", LOOK)
    await turn.emit(live.Token(text="Found."))
    await turn.finish("Found.")
    modes: Any = ["values", "messages-tuple", "updates"]
    parts = await parts_of(sdk.runs.join_stream(thread_id, run["run_id"], stream_mode=modes))
    assert parts[0] == ("metadata", {"run_id": run["run_id"], "thread_id": thread_id, "attempt": 1})
    assert parts[-1] == ("end", None)
    chunks = [data[0] for event, data in parts if event == "messages" and data[0]["type"] == "AIMessageChunk"]
    assert "".join(chunk["content"] for chunk in chunks) == "Looking.Found."
    assert [chunk["tool_call_chunks"][0]["name"] for chunk in chunks if chunk["tool_call_chunks"]] == ["look"]
    updates = [next(iter(data)) for event, data in parts if event == "updates"]
    assert updates == ["agent", "tools", "agent"]
    values = [data["messages"] for event, data in parts if event == "values"]
    assert [len(messages) for messages in (values[0], values[-1])] == [1, 4]
    assert [message["type"] for message in values[-1]] == ["human", "ai", "tool", "ai"]
    assert values[-1] == (await sdk.threads.get_state(thread_id))["values"]["messages"]  # pyright: ignore[reportArgumentType, reportCallIssue]
    legacy = await parts_of(sdk.runs.join_stream(thread_id, run["run_id"], stream_mode="messages"))
    complete = [data[0] for event, data in legacy if event == "messages/complete"]
    assert [message["content"] for message in complete] == ["Looking.", "done", "Found."]
    events = await parts_of(sdk.runs.join_stream(thread_id, run["run_id"], stream_mode="events"))
    assert "on_tool_end" in [data["event"] for event, data in events if event == "events"]


class Reader:
    """A client that keeps messages as LangChain does: chunks are added to what it has, and removals take it away."""

    def __init__(self) -> None:
        self.last_id: str | None = None
        self.messages: dict[str, tuple[str, str, str]] = {}
        self.values: Any = None
        self.is_over = False

    def take(self, event: DoorEvent) -> None:
        """Take an event."""
        self.last_id = event.id or self.last_id
        name, data = event.content
        match name:
            case "messages":
                self._take_message(data[0])
            case "values":
                self.values = data
            case "end":
                self.is_over = True
            case _:
                pass

    def _take_message(self, message: Any) -> None:
        before = self.messages.pop(message["id"], ("", "", ""))
        if message["type"] == "remove":
            return
        thought = message["additional_kwargs"].get("reasoning_content", "")
        args = "".join(chunk["args"] for chunk in message.get("tool_call_chunks", ()))
        parts = (thought, message["content"], args)
        is_chunk = message["type"] == "AIMessageChunk"
        joined = [had + part for had, part in zip(before, parts, strict=True)] if is_chunk else parts
        self.messages[message["id"]] = (joined[0], joined[1], joined[2])


@proves("doors.langgraph-streams")
async def test_a_client_that_is_cut_off_anywhere_has_each_message_once(
    api: Api, sdk: LangGraphClient, worker: ManualWorker, shared: SharedServers
) -> None:
    door = LangGraphDoor()
    thread_id = (await sdk.threads.create())["thread_id"]
    run_id = (await sdk.runs.create(thread_id, "nova", input=HELLO))["run_id"]
    turn = await worker.claim(thread_id)
    await turn.emit(live.Reasoning(text="Where"))
    await turn.emit(live.Reasoning(text=" is it?"), live.Token(text="Look"))
    await turn.emit(live.Token(text="ing."))
    await turn.commit("Looking.", LOOK, thinking="Where is it?")
    # A step that only calls a tool.
    await turn.commit("", replace(LOOK, id="toolu_2", step=1))
    await turn.emit(live.Token(text="Found"))
    await turn.finish("Found.")
    whole = await door.events(api.http, run_id)
    expected = Reader()
    for event in whole:
        expected.take(event)
    assert list(expected.messages.values()) == [
        ("Where is it?", "Looking.", '{"at":1}'),
        ("", "done", ""),
        ("", "", '{"at":1}'),
        ("", "done", ""),
        ("", "Found.", ""),
    ]
    assert expected.is_over
    async with Redis.from_url(shared.settings.require_redis_url()) as redis:
        for _ in range(2):
            for cut in range(1, len(whole)):
                reader = Reader()
                for event in whole[:cut]:
                    reader.take(event)
                for event in await door.events(api.http, run_id, after=reader.last_id):
                    reader.take(event)
                assert (reader.messages, reader.values) == (expected.messages, expected.values), whole[cut - 1]
                assert reader.is_over
            # Now from the ledger.
            await redis.delete(run_events(run_id))


@proves("doors.langgraph-interrupts")
async def test_what_a_run_asks_is_an_interrupt_and_resume_answers_it(
    api: Api, sdk: LangGraphClient, worker: ManualWorker
) -> None:
    thread_id = (await sdk.threads.create())["thread_id"]
    run = await sdk.runs.create(thread_id, "nova", input=HELLO)
    turn = await worker.claim(thread_id)
    await turn.suspend("I must ask.", NewWait("call_0", AskUser(question="Which colour?")))
    parts = await parts_of(sdk.runs.join_stream(thread_id, run["run_id"], stream_mode=["values", "updates"]))
    assert parts[-1] == ("end", None)
    [asked] = next(data for event, data in parts if event == "updates" and "__interrupt__" in data)["__interrupt__"]
    assert asked["value"]["question"] == "Which colour?"
    assert (await sdk.threads.get(thread_id))["status"] == "interrupted"
    assert (await sdk.threads.get_state(thread_id))["interrupts"] == [asked]
    assert (await sdk.runs.get(thread_id, run["run_id"]))["status"] == "interrupted"
    joined: Any = await sdk.runs.join(thread_id, run["run_id"])
    assert joined["__interrupt__"] == [asked]

    resumed = asyncio.create_task(
        parts_of(sdk.runs.stream(thread_id, "nova", command={"resume": "blue"}, stream_mode=["updates"]))
    )
    await until(partial(_is_resumed, sdk, thread_id, run["run_id"]), "the answer to be kept")
    turn = await worker.claim(thread_id)
    turn.step, turn.seq = 1, 3
    await turn.finish("Blue it is.")
    rest = await resumed
    assert rest[0][1]["run_id"] == run["run_id"]
    said = [data["agent"]["messages"][0]["content"] for event, data in rest if event == "updates" and "agent" in data]
    assert said == ["Blue it is."]
    with pytest.raises(ConflictError):
        await sdk.runs.create(thread_id, "nova", command={"resume": "red"})


async def test_an_answer_that_is_sent_again_with_its_id_streams_the_rest_of_the_run_again(
    api: Api, sdk: LangGraphClient, worker: ManualWorker
) -> None:
    thread_id = (await sdk.threads.create())["thread_id"]
    run_id = (await sdk.runs.create(thread_id, "nova", input=HELLO))["run_id"]
    turn = await worker.claim(thread_id)
    await turn.suspend("I must ask.", NewWait("call_0", AskUser(question="Which colour?")))
    # RemoteGraph sends a command with all of its fields.
    command = {"resume": "blue", "goto": [], "update": None}
    body = {"assistant_id": "nova", "command": command, "stream_mode": ["values", "messages-tuple"]}
    headers = {"Idempotency-Key": "answer"}
    answered = await api.http.post(f"/langgraph/threads/{thread_id}/runs", json=body, headers=headers)
    assert answered.json()["run_id"] == run_id
    turn = await worker.claim(thread_id)
    turn.step, turn.seq = 1, 3
    await turn.finish("Blue it is.")
    streams = f"/langgraph/threads/{thread_id}/runs"
    again = await api.http.post(streams, json=body, headers=headers)
    assert again.json()["run_id"] == run_id
    other = await api.http.post(streams, json={**body, "command": {"resume": "red"}}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_mismatch")


async def test_a_stream_of_an_answer_begins_at_the_answer_and_can_be_resumed_from_its_first_event(
    api: Api, sdk: LangGraphClient, worker: ManualWorker
) -> None:
    thread_id = (await sdk.threads.create())["thread_id"]
    run_id = (await sdk.runs.create(thread_id, "nova", input=HELLO))["run_id"]
    turn = await worker.claim(thread_id)
    await turn.suspend("I must ask.", NewWait("call_0", AskUser(question="Which colour?")))
    body = {
        "assistant_id": "nova",
        "command": {"resume": "blue"},
        "stream_mode": ["values", "messages-tuple", "updates"],
    }
    answering = asyncio.create_task(api.http.post(f"/langgraph/threads/{thread_id}/runs/stream", json=body))
    await until(partial(_is_resumed, sdk, thread_id, run_id), "the answer to be kept")
    turn = await worker.claim(thread_id)
    turn.step, turn.seq = 1, 3
    await turn.finish("Blue it is.")
    whole = events_of((await answering).text)
    assert whole[0].id is not None
    rest = await LangGraphDoor().events(api.http, run_id, after=whole[0].id)
    for events in (whole, rest):
        said = [data[0]["content"] for name, data in (event.content for event in events) if name == "messages"]
        assert said.count("Blue it is.") == 1
        assert "I must ask." not in said
    assert rest[-1] == whole[-1]


@pytest.mark.parametrize(
    ("resume", "status"), [(True, 200), ({"decisions": [{"type": "reject", "message": "No."}]}, 200), (7, 422)]
)
async def test_a_call_that_needs_permission_is_decided_by_resume(
    api: Api, sdk: LangGraphClient, worker: ManualWorker, resume: Any, status: int
) -> None:
    thread_id = (await sdk.threads.create())["thread_id"]
    await sdk.runs.create(thread_id, "nova", input=HELLO)
    turn = await worker.claim(thread_id)
    ask = AskApproval(tool_name="Bash", params={"command": "ls"}, reason="a rule")
    await turn.suspend("", NewWait("call_0", ask))
    body = {"assistant_id": "nova", "command": {"resume": resume}}
    answered = await api.http.post(f"/langgraph/threads/{thread_id}/runs", json=body)
    assert answered.status_code == status, answered.text


async def test_a_run_may_name_the_newest_state_and_no_other(
    api: Api, sdk: LangGraphClient, worker: ManualWorker
) -> None:
    thread_id = (await sdk.threads.create())["thread_id"]
    checkpoint: Any = None
    for _ in range(2):
        checkpoint = (await sdk.threads.get_state(thread_id))["checkpoint"]
        await sdk.runs.create(thread_id, "nova", input=HELLO, checkpoint=checkpoint)
        await worker.play(thread_id, "Hello.")
    with pytest.raises(APIStatusError, match="newest state") as error:
        await sdk.runs.create(thread_id, "nova", input=HELLO, checkpoint=checkpoint)
    assert error.value.status_code == 501


async def test_a_stateless_run_begins_with_what_was_said_elsewhere(
    api: Api, sdk: LangGraphClient, worker: ManualWorker
) -> None:
    said: Any = {"messages": [("user", "hi"), ("assistant", "Hello."), {"type": "human", "content": "And now?"}]}
    run = await sdk.runs.create(None, "nova", input=said)
    thread_id = await thread_of(api, run["run_id"])
    thread = (await api.http.get(f"/v1/threads/{thread_id}")).json()
    assert thread["ephemeral"] is True
    await worker.play(thread_id, "Later.")
    state: Any = await sdk.threads.get_state(thread_id)
    assert [each["content"] for each in state["values"]["messages"]] == ["hi", "Hello.", "And now?", "Later."]
    kept = await sdk.runs.create(None, "nova", input=HELLO, on_completion="keep")
    thread_id = await thread_of(api, kept["run_id"])
    assert (await api.http.get(f"/v1/threads/{thread_id}")).json()["ephemeral"] is False


@pytest.mark.parametrize(
    "fields",
    [
        {"multitask_strategy": "rollback"},
        {"webhook": "https://example.com"},
        {"checkpoint_id": "run_1"},
        {"interrupt_before": ["tools"]},
        {"stream_mode": "debug"},
        {"on_disconnect": "cancel"},
        {"command": {"goto": "tools"}},
    ],
    ids=str,
)
async def test_what_no_run_keeps_is_a_501(api: Api, fields: dict[str, Any]) -> None:
    body = {"assistant_id": "nova", "input": HELLO, **fields}
    answer = await api.http.post("/langgraph/runs/stream", json=body)
    assert (answer.status_code, answer.json()["code"]) == (501, "not_offered"), answer.text
    assert await api.count("runs") == 0


async def test_inputs_that_no_agent_reads_are_refused(api: Api, sdk: LangGraphClient) -> None:
    inputs: list[Any] = [
        None,
        {},
        {"question": "?"},
        {"messages": []},
        {"messages": [{"role": "tool", "content": "x"}]},
    ]
    for given in inputs:
        with pytest.raises(APIStatusError) as error:
            await sdk.runs.create(None, "nova", input=given)
        assert error.value.status_code == 422
    assert await api.count("runs") == 0


async def test_a_run_that_lost_its_worker_is_in_the_state_of_its_thread(
    api: Api, sdk: LangGraphClient, worker: ManualWorker
) -> None:
    thread_id = (await sdk.threads.create())["thread_id"]
    await sdk.runs.create(thread_id, "nova", input={"messages": [{"role": "user", "content": "hello"}]})
    turn = await worker.claim(thread_id)
    await turn.commit("I begin.")
    await turn.requeue()
    state: Any = await sdk.threads.get_state(thread_id)
    assert [message["content"] for message in state["values"]["messages"]] == ["hello", "I begin."]
    assert state["next"]
    assert (await sdk.threads.get(thread_id))["status"] == "busy"
