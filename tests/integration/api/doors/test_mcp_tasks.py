"""Tasks of the MCP server are runs, and no process keeps anything of them."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from api.doors.service import Door
from api.streaming.following import Ending, Follower
from nova_workers.base.errors import NovaError, Unavailable, missing
from nova_workers.base.ids import new_id
from nova_workers.contracts import events as live
from nova_workers.contracts.engine import EngineError
from nova_workers.contracts.waits import AskApproval
from nova_workers.domain.waits.sql.suspend import NewWait
from tests.integration.api.conftest import Api, served
from tests.integration.api.doors.mcp_requests import (
    BOTH,
    QUESTION,
    QUESTIONS,
    TASKS,
    McpRequests,
    begun,
)
from tests.integration.api.manual_worker import ManualWorker, Tenant
from tests.integration.api.shared_servers import SharedServers
from tests.requirements import proves
from tests.support.waiting import pass_time, until


@proves("doors.mcp-tasks")
async def test_a_task_is_a_run_that_every_process_answers_for(
    api: Api, worker: ManualWorker, shared: SharedServers
) -> None:
    client, run_id, turn = await begun(api, worker)
    task = await client.task(run_id)
    assert task["status"] == "working"
    assert task["resultType"] == "complete"
    assert task["ttlMs"] is None
    await turn.finish("Hello!")
    other = shared.enter(served(shared.settings.model_copy(update={"doors": ("mcp",)})))[0]
    async with httpx2.AsyncClient(base_url=other, headers=api.http.headers, timeout=60) as http:
        done = await McpRequests(http, BOTH).task(run_id)
    assert done["status"] == "completed"
    assert done["result"]["content"] == [{"type": "text", "text": "Hello!"}]
    assert done["result"]["structuredContent"]["thread_id"] == turn.claim.thread_id


@proves("doors.mcp-questions")
async def test_a_question_is_input_that_the_task_requires(api: Api, worker: ManualWorker) -> None:
    client, run_id, turn = await begun(api, worker)
    await turn.suspend("I must ask.", QUESTION)
    task = await client.task(run_id)
    assert task["status"] == "input_required"
    [(wait_id, asked)] = task["inputRequests"].items()
    assert asked["method"] == "elicitation/create"
    assert asked["params"]["requestedSchema"]["properties"]["answer"]["enum"] == ["red", "blue"]
    answered: dict[str, Any] = {
        "taskId": run_id,
        "inputResponses": {wait_id: {"action": "accept", "content": {"answer": "red"}}},
    }
    ack = (await client.call("tasks/update", answered)).result
    assert {"taskId", "status", "result"}.isdisjoint(ack)
    assert (await client.task(run_id))["status"] == "working"
    # The same again, and keys that were never given, change nothing.
    answered["inputResponses"] |= {"wait_other": {"action": "accept", "content": {}}}
    assert (await client.call("tasks/update", answered)).result["resultType"] == "complete"
    again = await worker.claim(turn.claim.thread_id)
    await again.finish("Red it is.")
    assert (await client.task(run_id))["status"] == "completed"


async def test_a_question_is_answered_in_parts(api: Api, worker: ManualWorker) -> None:
    client, run_id, turn = await begun(api, worker)
    approval = AskApproval(tool_name="Bash", params={"command": "rm -r build"}, reason="it deletes")
    await turn.suspend("", QUESTION, NewWait("call_1", approval))
    asked = (await client.task(run_id))["inputRequests"]
    forms = {wait_id: request["params"]["requestedSchema"] for wait_id, request in asked.items()}
    refused = next(wait_id for wait_id, form in forms.items() if "approve" in form["properties"])
    wrong = await client.call("tasks/update", {"taskId": run_id, "inputResponses": {refused: "no"}})
    assert (wrong.error["code"], wrong.error["data"]["field"]) == (-32602, "inputResponses")
    await client.call("tasks/update", {"taskId": run_id, "inputResponses": {refused: {"action": "decline"}}})
    task = await client.task(run_id)
    assert task["status"] == "input_required"
    assert set(task["inputRequests"]) == set(asked) - {refused}


@proves("doors.mcp-questions")
async def test_a_client_that_shows_no_questions_gets_them_in_words(api: Api, worker: ManualWorker) -> None:
    client, run_id, turn = await begun(api, worker, TASKS)
    await turn.suspend("", QUESTION)
    task = await client.task(run_id)
    assert task["status"] == "working"
    assert "answer" in task["statusMessage"]
    told = (await client.tool("get_run", run_id=run_id)).result
    [question] = told["structuredContent"]["questions"]
    assert question["question"].startswith("Which colour?")
    assert question["wait_id"] in told["content"][0]["text"]
    # A client whose first result was lost gives the answer again.
    for _ in range(2):
        given = await client.tool("answer", run_id=run_id, wait_id=question["wait_id"], text="blue", wait_s=0)
        assert given.result["structuredContent"]["status"] == "queued"
    other = await client.tool("answer", run_id=run_id, wait_id=question["wait_id"], text="red", wait_s=0)
    assert other.result["isError"]


async def test_an_empty_form_is_no_answer(api: Api, worker: ManualWorker) -> None:
    client, run_id, turn = await begun(api, worker)
    await turn.suspend("I must ask.", QUESTION)
    [wait_id] = (await client.task(run_id))["inputRequests"]
    empty = {wait_id: {"action": "accept", "content": {"answer": " "}}}
    await client.call("tasks/update", {"taskId": run_id, "inputResponses": empty})
    async with worker.database.connection() as connection:
        [row] = await connection.fetch("SELECT answer FROM run_waits WHERE id = :id", id=wait_id)
    assert "declined" in str(row["answer"])


async def test_a_canceled_task_stays_so(api: Api, worker: ManualWorker) -> None:
    client, run_id, turn = await begun(api, worker)
    for _ in range(2):
        assert (await client.call("tasks/cancel", {"taskId": run_id})).result["resultType"] == "complete"
    await turn.finish("", "canceled")
    assert (await client.task(run_id))["status"] == "cancelled"
    assert (await client.call("tasks/cancel", {"taskId": run_id})).result["resultType"] == "complete"


async def test_failures_of_the_fleet_are_errors_and_all_others_results(api: Api, worker: ManualWorker) -> None:
    client, run_id, turn = await begun(api, worker)
    await turn.finish("", "failed", error=EngineError("model_error", "It refused.", retryable=False))
    task = await client.task(run_id)
    assert task["status"] == "completed"
    assert task["result"]["isError"]
    client, run_id, turn = await begun(api, worker)
    await turn.finish("", "failed", error=EngineError("engine_error", "A defect.", retryable=False))
    task = await client.task(run_id)
    assert task["status"] == "failed"
    assert (task["error"]["code"], task["error"]["message"]) == (-32603, "A defect.")


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_tasks_need_a_client_that_declares_them_and_name_them_in_a_header(api: Api, method: str) -> None:
    params = {"taskId": new_id("run")} | ({"inputResponses": {}} if method == "tasks/update" else {})
    undeclared = await McpRequests(api.http, QUESTIONS).call(method, params)
    assert (undeclared.status, undeclared.error["code"]) == (400, -32021)
    assert undeclared.error["data"]["requiredCapabilities"] == TASKS
    client = McpRequests(api.http, TASKS)
    other = await client.call(method, params, mcp_name="run_other")
    assert (other.status, other.error["code"]) == (400, -32020)
    unknown = await client.call(method, params)
    assert (unknown.status, unknown.error["code"]) == (400, -32602)


@pytest.mark.parametrize("method", ["tasks/list", "tasks/result"])
async def test_methods_of_earlier_tasks_do_not_exist(api: Api, method: str) -> None:
    reply = await McpRequests(api.http, TASKS).call(method, {"taskId": "run_1"})
    assert (reply.status, reply.error["code"]) == (404, -32601)


async def test_a_subscription_sends_each_state_to_the_end(api: Api, worker: ManualWorker) -> None:
    client, run_id, turn = await begun(api, worker)
    wanted = {"notifications": {"taskIds": [run_id, new_id("run")], "toolsListChanged": True}}
    seen: list[Any] = []

    async def read() -> None:
        async with client.open("subscriptions/listen", wanted) as messages:
            async for message in messages:
                # One by one: the test looks at what has come.
                seen.append(message)  # noqa: PERF401

    async with asyncio.timeout(30):
        reading = asyncio.create_task(read())
        await until(lambda: len(seen) == 2, "the present state")
        await turn.suspend("I must ask.", QUESTION)
        await turn.emit(live.Waiting(kind="user", question="Which colour?", options=("red", "blue")))
        await until(lambda: len(seen) == 3, "the question")
        assert (await client.tool("answer", run_id=run_id, text="red", wait_s=0)).result
        again = await worker.claim(turn.claim.thread_id)
        await again.finish("Red it is.")
        await reading
    acknowledged, *states, end = seen
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    assert acknowledged["params"]["notifications"] == {"taskIds": [run_id]}
    assert {state["method"] for state in states} == {"notifications/tasks"}
    told = [state["params"]["status"] for state in states]
    assert told[:2] == ["working", "input_required"]
    assert told[-1] == "completed"
    assert all(state["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == 1 for state in states)
    assert end["result"]["resultType"] == "complete"


async def test_a_task_that_is_gone_ends_alone_and_an_outage_the_subscription(
    api: Api, worker: ManualWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, kept, turn = await begun(api, worker)
    gone = (await client.tool("ask_nova", message="hello")).result["taskId"]
    watch = Door.watch
    error: NovaError = missing("run", gone)
    await turn.finish("Hello!")

    async def fail(self: Door, run_id: str, follower: Follower) -> Ending:
        if run_id == gone:
            raise error
        return await watch(self, run_id, follower)

    monkeypatch.setattr(Door, "watch", fail)
    wanted = {"notifications": {"taskIds": [gone, kept]}}
    reply = await client.call("subscriptions/listen", wanted)
    assert reply.result["resultType"] == "complete"
    assert reply.notifications[-1]["params"]["status"] == "completed"
    error = Unavailable("The database does not answer.")
    reply = await client.call("subscriptions/listen", wanted)
    assert (reply.error["code"], reply.error["data"]["code"]) == (-32603, "unavailable")


async def test_another_tenant_has_none_of_it(api: Api, worker: ManualWorker, other_tenant: Tenant) -> None:
    _, run_id, turn = await begun(api, worker)
    async with api.client(other_tenant.key) as http:
        other = McpRequests(http, BOTH)
        assert (await other.call("tasks/get", {"taskId": run_id})).error["code"] == -32602
        uri = f"nova://threads/{turn.claim.thread_id}"
        assert (await other.call("resources/read", {"uri": uri})).error["code"] == -32602
        wanted = {"notifications": {"taskIds": [run_id]}}
        reply = await other.call("subscriptions/listen", wanted)
        assert reply.notifications[0]["params"]["notifications"] == {}


async def test_a_call_with_the_same_id_has_the_same_run(api: Api) -> None:
    client = McpRequests(api.http, TASKS)
    made = [(await client.tool("ask_nova", message="hello", request_id="order 4711 ✓")).result for _ in range(2)]
    assert made[0]["taskId"] == made[1]["taskId"]
    other = (await client.tool("ask_nova", message="another", request_id="order 4711 ✓")).result
    assert other["isError"]
    # Another key's request is another one, whatever its model called it.
    key = (await api.http.post("/v1/keys", json={"name": "other", "scopes": ["runs"]})).json()["key"]
    async with api.client(key) as http:
        theirs = (await McpRequests(http, TASKS).tool("ask_nova", message="hello", request_id="order 4711 ✓")).result
    assert theirs["taskId"] != made[0]["taskId"]
    meta = {"nova-workers/request-id": "7"}
    made = [(await client.tool("ask_nova", meta, message="hello")).result for _ in range(2)]
    assert made[0]["taskId"] == made[1]["taskId"]


async def test_a_process_that_stops_ends_subscriptions_and_calls(own_api: Api) -> None:
    client = McpRequests(own_api.http, TASKS)
    run_id = (await client.tool("ask_nova", message="hello")).result["taskId"]
    listening = asyncio.create_task(client.call("subscriptions/listen", {"notifications": {"taskIds": [run_id]}}))
    calling = asyncio.create_task(McpRequests(own_api.http).tool("get_run", run_id=run_id, wait_s=600))
    await pass_time(0)
    own_api.state.watch.close()
    listened, called = await listening, await calling
    assert listened.notifications[-1]["params"]["status"] == "working"
    assert listened.result["resultType"] == "complete"
    # Another process goes on: the client asks again.
    assert called.result["structuredContent"]["status"] == "queued"
