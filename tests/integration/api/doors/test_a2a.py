"""The A2A door: cards, streams, questions, files, and the SDK's own client by either binding."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import httpx
import pytest
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientError
from a2a.types import (
    CancelTaskRequest,
    GetExtendedAgentCardRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from a2a.utils.errors import A2AError, TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError

from nova_workers.contracts import events as live
from nova_workers.contracts.content import text_block
from nova_workers.contracts.steps import ToolCall
from nova_workers.contracts.waits import AskApproval, AskUser
from nova_workers.domain.waits.sql.suspend import NewWait
from tests.integration.api.conftest import Api
from tests.integration.api.doors.a2a_client import events_of, message_of, rpc
from tests.integration.api.doors.test_contract import NO_RUN, QUESTION, thread_of
from tests.integration.api.manual_worker import ManualWorker, Tenant
from tests.requirements import proves

Binding = Literal["JSONRPC", "HTTP+JSON"]

both = pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])


@asynccontextmanager
async def client_of(
    url: str,
    key: str,
    binding: Binding = "JSONRPC",
    *,
    streaming: bool = True,
    polling: bool = False,
    agent: str = "nova",
) -> AsyncGenerator[Client]:
    """A client of the SDK that found an agent by its card."""
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=60) as http:
        card = await A2ACardResolver(http, f"{url}/a2a/{agent}").get_agent_card()
        config = ClientConfig(
            httpx_client=http, supported_protocol_bindings=[binding], streaming=streaming, polling=polling
        )
        yield ClientFactory(config).create(card)


def said(text: str, message_id: str = "m1", *, context_id: str = "", task_id: str = "") -> SendMessageRequest:
    """Return a request with a message of a user."""
    parts = [Part(text=text)]
    message = Message(message_id=message_id, role=Role.ROLE_USER, parts=parts, context_id=context_id, task_id=task_id)
    return SendMessageRequest(message=message)


async def sent(client: Client, request: SendMessageRequest) -> Task:
    """Send a message, and return the task that is the answer."""
    [answer] = [each async for each in client.send_message(request)]
    return answer.task


def answer_of(events: list[StreamResponse]) -> str:
    """Return the answer as a client joins it from the events of a stream."""
    text = ""
    for event in events:
        if event.HasField("artifact_update") and event.artifact_update.artifact.artifact_id == "answer":
            update = event.artifact_update
            piece = "".join(part.text for part in update.artifact.parts)
            text = text + piece if update.append else piece
    return text


async def rest_of(stream: AsyncIterator[StreamResponse]) -> list[StreamResponse]:
    """Return the events of a stream, to its end."""
    return [event async for event in stream]


def states_of(events: list[StreamResponse]) -> list[int]:
    """Return the states that the events of a stream name."""
    return [
        event.task.status.state if event.HasField("task") else event.status_update.status.state
        for event in events
        if event.HasField("task") or event.HasField("status_update")
    ]


async def test_the_fleets_card_needs_no_key_and_has_nothing_of_a_tenant(api: Api) -> None:
    described = {"id": "secretary", "name": "Secretary", "description": "Keeps the calendar."}
    assert (await api.http.post("/v1/agents", json=described)).is_success
    async with api.client(None) as keyless:
        answer = await keyless.get("/.well-known/agent-card.json")
        own = await keyless.get("/a2a/secretary/.well-known/agent-card.json")
    card = answer.json()
    assert answer.headers["cache-control"] == "public, max-age=60"
    assert card["name"] == "Nova Workers"
    assert "ecretary" not in answer.text
    assert [each["protocolBinding"] for each in card["supportedInterfaces"]] == ["JSONRPC", "HTTP+JSON"]
    assert {each["url"] for each in card["supportedInterfaces"]} == {f"{api.url}/a2a/nova"}
    assert own.status_code == 401
    again = await api.http.get("/.well-known/agent-card.json", headers={"if-none-match": answer.headers["etag"]})
    assert again.status_code == 304


@both
async def test_an_agents_card_is_for_the_keys_of_its_tenant(api: Api, other_tenant: Tenant, binding: Binding) -> None:
    described = {"id": "secretary", "name": "Secretary", "description": "Keeps the calendar."}
    assert (await api.http.post("/v1/agents", json=described)).is_success
    async with client_of(api.url, api.tenant.key, binding, agent="secretary") as client:
        card = await client.get_extended_agent_card(GetExtendedAgentCardRequest())
    assert (card.name, card.description, card.version) == ("Secretary", "Keeps the calendar.", "1")
    assert [skill.id for skill in card.skills] == ["secretary"]
    path = "/a2a/{}/.well-known/agent-card.json"
    async with api.client(other_tenant.key) as stranger:
        theirs, none = [await stranger.get(path.format(agent)) for agent in ("secretary", "nobody")]
    assert (theirs.status_code, none.status_code) == (404, 404)
    assert theirs.text.replace("secretary", "nobody") == none.text


@proves("doors.a2a")
@both
async def test_the_sdks_client_follows_a_task(api: Api, worker: ManualWorker, binding: Binding) -> None:
    async with client_of(api.url, api.tenant.key, binding) as client:
        stream = client.send_message(said("What is a fence?"))
        first = await anext(stream)
        task = first.task
        assert (task.status.state, task.history[0].message_id) == (TaskState.TASK_STATE_SUBMITTED, "m1")
        turn = await worker.claim(task.context_id)
        await turn.emit(live.Token(text="Look"), live.Token(text="ing."))
        await turn.commit("Looking.", ToolCall("toolu_1", "look", {}, 0, 0, "completed", (text_block("done"),)))
        await turn.emit(live.Token(text="A number "))
        await turn.finish("A number that grows.")
        events = await rest_of(stream)
        assert states_of(events)[-1] == TaskState.TASK_STATE_COMPLETED
        assert answer_of(events) == "A number that grows."
        found = await client.get_task(GetTaskRequest(id=task.id))
    assert [part.text for part in found.artifacts[0].parts] == ["A number that grows."]
    assert [part.text for message in found.history for part in message.parts] == [
        "What is a fence?",
        "Looking.",
        "A number that grows.",
    ]


@proves("doors.a2a")
@both
async def test_a_subscription_begins_with_the_task_and_has_the_rest(
    api: Api, worker: ManualWorker, binding: Binding
) -> None:
    async with (
        client_of(api.url, api.tenant.key, binding, polling=True, streaming=False) as poller,
        client_of(api.url, api.tenant.key, binding) as client,
    ):
        task = await sent(poller, said("What is a fence?"))
        turn = await worker.claim(task.context_id)
        await turn.commit("Looking.", ToolCall("toolu_1", "look", {}, 0, 0, "completed", (text_block("done"),)))
        await turn.emit(live.Token(text="A num"))
        stream = client.subscribe(SubscribeToTaskRequest(id=task.id))
        first = (await anext(stream)).task
        assert (first.status.state, first.artifacts[0].parts[0].text) == (TaskState.TASK_STATE_WORKING, "Looking.")
        await turn.finish("A number.")
        events = await rest_of(stream)
        assert answer_of(events) == "A number."
        assert states_of(events) == [TaskState.TASK_STATE_COMPLETED]
        with pytest.raises(UnsupportedOperationError):
            await anext(client.subscribe(SubscribeToTaskRequest(id=task.id)))


@both
async def test_a_question_requires_input_and_a_message_to_the_task_answers_it_once(
    api: Api, worker: ManualWorker, binding: Binding
) -> None:
    async with client_of(api.url, api.tenant.key, binding) as client:
        stream = client.send_message(said("Paint."))
        task = (await anext(stream)).task
        turn = await worker.claim(task.context_id)
        await turn.suspend("Hm.", NewWait("toolu_1", AskUser(question="Which?", options=("red", "blue"))))
        await turn.emit(live.StreamEnd(run_id=task.id, final=False, status="waiting"))
        asked = (await rest_of(stream))[-1].status_update.status
        assert asked.state == TaskState.TASK_STATE_INPUT_REQUIRED
        assert asked.message.parts[0].text.startswith("Which?")
        answer = said("blue", "m2", task_id=task.id)
        answer.configuration.return_immediately = True
        async with client_of(api.url, api.tenant.key, binding, streaming=False, polling=True) as poller:
            assert (await sent(poller, answer)).id == task.id
            turn = await worker.claim(task.context_id)
            turn.step, turn.seq = 1, 3
            await turn.suspend("So.", NewWait("toolu_2", AskUser(question="Sure?")))
            # It comes again, and answers no other question.
            again = await sent(poller, answer)
            assert again.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
            assert again.status.message.parts[0].text == "Sure?"
            other = said("yes", "m3", task_id=task.id, context_id="thr_01ARZ3NDEKTSV4RRFFQ69G5FAV")
            with pytest.raises((A2AError, A2AClientError)):
                await sent(poller, other)


async def test_a_permission_is_given_in_words(api: Api, worker: ManualWorker) -> None:
    async with client_of(api.url, api.tenant.key, streaming=False, polling=True) as client:
        task = await sent(client, said("Clean up."))
        turn = await worker.claim(task.context_id)
        await turn.suspend(
            "Hm.", NewWait("toolu_1", AskApproval(tool_name="rm", params={"path": "/"}, reason="Risky."))
        )
        with pytest.raises((A2AError, A2AClientError), match="yes or no"):
            await sent(client, said("Perhaps.", "m2", task_id=task.id))
        assert (await sent(client, said("No, keep it.", "m3", task_id=task.id))).id == task.id
    assert (await api.http.get(f"/v1/runs/{task.id}")).json()["status"] == "queued"


@both
async def test_tasks_that_ended_take_no_message_and_are_not_canceled(
    api: Api, worker: ManualWorker, binding: Binding
) -> None:
    async with client_of(api.url, api.tenant.key, binding, streaming=False, polling=True) as client:
        task = await sent(client, said("hello"))
        await worker.play(task.context_id, "Hi.")
        with pytest.raises(UnsupportedOperationError):
            await sent(client, said("more", "m2", task_id=task.id))
        with pytest.raises(TaskNotCancelableError):
            await client.cancel_task(CancelTaskRequest(id=task.id))
        with pytest.raises(TaskNotFoundError):
            await client.get_task(GetTaskRequest(id=NO_RUN))
        later = await sent(client, said("more", "m3", context_id=task.context_id))
        assert (later.context_id, later.id != task.id) == (task.context_id, True)
        canceled = await client.cancel_task(CancelTaskRequest(id=later.id))
        assert canceled.status.state == TaskState.TASK_STATE_CANCELED


async def test_a_client_that_waits_gets_the_task_at_its_end(api: Api, worker: ManualWorker) -> None:
    thread = await api.thread()
    run = await api.run(thread, "Earlier.")
    await worker.play(thread, "Done.")
    message = message_of("hello", contextId=thread)
    answer = await rpc("SendMessage", {"message": message, "configuration": {"returnImmediately": True}}).send(api.http)
    task = answer.json()["result"]["task"]
    assert task["contextId"] == thread
    await worker.play(thread, "Hi.")
    # The same message again waits for the same task.
    request = rpc("SendMessage", {"message": message, "configuration": {"historyLength": 1}})
    again = (await request.send(api.http)).json()["result"]["task"]
    assert (again["id"], again["status"]["state"], len(again["history"])) == (
        task["id"],
        "TASK_STATE_COMPLETED",
        1,
    )
    assert run != task["id"]


async def test_contents_of_every_kind_reach_the_agent_and_others_are_named(api: Api) -> None:
    parts: list[dict[str, Any]] = [
        {"text": "Look."},
        {"data": {"a": [1, None, True]}},
        {"raw": "aGVsbG8=", "mediaType": "text/plain", "filename": "a.txt"},
        {"url": "https://example.com/a.png", "mediaType": "image/png"},
    ]

    async def send(parts: list[dict[str, Any]]) -> dict[str, Any]:
        message = {**message_of(""), "parts": parts}
        request = rpc("SendMessage", {"message": message, "configuration": {"returnImmediately": True}})
        return (await request.send(api.http)).json()

    task = (await send(parts))["result"]["task"]
    blocks = (await api.http.get(f"/v1/runs/{task['id']}")).json()["message"]
    assert [block["type"] for block in blocks] == ["text", "text", "document", "image"]
    assert blocks[1]["text"] == '{"a":[1.0,null,true]}'
    refused = (await send([{"raw": "aGVsbG8=", "mediaType": "audio/wav"}]))["error"]
    assert (refused["code"], refused["data"][0]["metadata"]["field"]) == (-32005, "message.parts.0")
    empty = (await send([{"mediaType": "text/plain"}]))["error"]
    assert (empty["code"], empty["data"][1]["fieldViolations"][0]["field"]) == (-32602, "message.parts.0")
    unknown = rpc("SendMessage", {"message": message_of("hello", contextId="mine")})
    assert (await unknown.send(api.http)).json()["error"]["code"] == -32602


async def test_clients_of_another_version_are_refused(api: Api) -> None:
    request = rpc("SendStreamingMessage", {"message": message_of("hello")})
    for version in ("0.3", "2.0"):
        answer = await request.plus(**{"A2A_Version": version}).send(api.http)
        assert answer.json()["error"]["code"] == -32009
    assert await api.count("runs") == 0


async def test_the_http_binding_has_statuses(api: Api, other_tenant: Tenant) -> None:
    headers = {"A2A-Version": "1.0"}
    none = await api.http.get(f"/a2a/nova/tasks/{NO_RUN}", headers=headers)
    assert (none.status_code, none.json()["error"]["status"]) == (404, "NOT_FOUND")
    body = {"message": message_of("once", "m1"), "configuration": {"returnImmediately": True}}
    made = await api.http.post("/a2a/nova/message:send", json=body, headers=headers)
    assert (made.status_code, made.headers["content-type"]) == (200, "application/a2a+json")
    body["message"] = message_of("twice", "m1")
    mismatch = await api.http.post("/a2a/nova/message:send", json=body, headers=headers)
    assert (mismatch.status_code, mismatch.json()["error"]["status"]) == (409, "ABORTED")
    agent = await api.http.post("/a2a/nobody/message:stream", json={"message": message_of("hi")}, headers=headers)
    assert agent.status_code == 404
    async with api.client(other_tenant.key) as stranger:
        task = made.json()["task"]["id"]
        assert (await stranger.get(f"/a2a/nova/tasks/{task}", headers=headers)).status_code == 404
        assert (await stranger.post(f"/a2a/nova/tasks/{task}:cancel", headers=headers)).status_code == 404


async def test_a_task_of_another_agent_is_none_of_this_one(api: Api) -> None:
    assert (await api.http.post("/v1/agents", json={"id": "clerk", "name": "Clerk"})).is_success
    run = await api.run(await api.thread(), "hello")
    for method in ("GetTask", "CancelTask", "SubscribeToTask"):
        answer = await rpc(method, {"id": run}, agent="clerk").send(api.http)
        assert answer.json()["error"]["code"] == -32001, method
    message = message_of("hello", contextId=await thread_of(api, run))
    answer = await rpc("SendMessage", {"message": message}, agent="clerk").send(api.http)
    assert answer.json()["error"]["code"] == -32602


async def test_a_stream_that_asks_ends_there(api: Api, worker: ManualWorker) -> None:
    run = await api.run(await api.thread(), "hello")
    turn = await worker.claim(await thread_of(api, run))
    await turn.suspend("I must ask.", QUESTION)
    await turn.emit(live.StreamEnd(run_id=run, final=False, status="waiting"))
    stream = await rpc("SubscribeToTask", {"id": run}).send(api.http)
    first, last = events_of(stream.content)[0], events_of(stream.content)[-1]
    assert first["task"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert last["statusUpdate"]["status"]["message"]["parts"][0]["text"] == "Which colour?"


@both
async def test_tasks_are_listed_in_pages_by_context_and_state(
    api: Api, worker: ManualWorker, other_tenant: Tenant, binding: Binding
) -> None:
    thread = await api.thread()
    first, second = [await api.run(thread, text) for text in ("one", "two")]
    other = await api.run(await api.thread(), "three")
    await worker.play(thread, "Done.")
    async with client_of(api.url, api.tenant.key, binding) as client:
        page = await client.list_tasks(ListTasksRequest(page_size=2))
        # That which changed last comes first: the one that has ended.
        assert ([task.id for task in page.tasks], page.total_size, page.page_size) == ([first, other], 3, 2)
        rest = await client.list_tasks(ListTasksRequest(page_size=2, page_token=page.next_page_token))
        assert ([task.id for task in rest.tasks], rest.next_page_token) == ([second], "")
        assert not page.tasks[0].artifacts
        done = ListTasksRequest(
            context_id=thread, status=TaskState.TASK_STATE_COMPLETED, include_artifacts=True, history_length=5
        )
        [task] = (await client.list_tasks(done)).tasks
        assert (task.id, task.artifacts[0].parts[0].text, len(task.history)) == (first, "Done.", 2)
        asking = ListTasksRequest(status=TaskState.TASK_STATE_INPUT_REQUIRED)
        assert not (await client.list_tasks(asking)).tasks
        asked = await api.thread()
        asking_run = await api.run(asked, "four")
        await (await worker.claim(asked)).suspend("Hm.", NewWait("toolu_1", AskUser(question="Which?")))
        for wanted in (asking, ListTasksRequest(page_size=1), ListTasksRequest(context_id=asked)):
            assert [task.id for task in (await client.list_tasks(wanted)).tasks] == [asking_run]
        times = [task.status.timestamp.ToDatetime() for task in (await client.list_tasks(ListTasksRequest())).tasks]
        assert times == sorted(times, reverse=True)
        since = ListTasksRequest()
        since.status_timestamp_after.FromDatetime(times[1])
        assert [task.id for task in (await client.list_tasks(since)).tasks] == [asking_run, first]
        later = ListTasksRequest()
        later.status_timestamp_after.FromJsonString("2999-01-01T00:00:00Z")
        assert not (await client.list_tasks(later)).tasks
        for wrong in (ListTasksRequest(page_size=101), ListTasksRequest(page_token="none")):
            with pytest.raises((A2AError, A2AClientError)):
                await client.list_tasks(wrong)
    async with client_of(api.url, other_tenant.key, binding) as stranger:
        assert not (await stranger.list_tasks(ListTasksRequest(context_id=thread))).tasks


async def test_a_message_is_the_same_by_each_binding_with_and_without_a_stream(api: Api, worker: ManualWorker) -> None:
    message = message_of("once", "m1")
    first = await rpc("SendMessage", {"message": message, "configuration": {"returnImmediately": True}}).send(api.http)
    task = first.json()["result"]["task"]
    await worker.play(task["contextId"], "Hi.")
    headers = {"A2A-Version": "1.0"}
    whole = await api.http.post("/a2a/nova/message:send", json={"message": message}, headers=headers)
    stream = await api.http.post("/a2a/nova/message:stream", json={"message": message}, headers=headers)
    assert whole.json()["task"]["id"] == task["id"]
    assert events_of(stream.content)[0]["task"]["id"] == task["id"]
    assert await api.count("runs") == 1
