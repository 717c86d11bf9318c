"""The fleet as an MCP server: agents are tools, for clients of every version."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from nova_workers.base.ids import new_id
from nova_workers.contracts import events as live
from tests.integration.api.conftest import Api
from tests.integration.api.doors.mcp_requests import (
    QUESTION,
    QUESTIONS,
    TASKS,
    McpRequests,
    claimed,
    thread_of,
)
from tests.integration.api.manual_worker import ManualWorker
from tests.support.waiting import pass_time, until


async def test_a_key_has_a_tool_for_each_agent(api: Api) -> None:
    client = McpRequests(api.http)
    listed = (await client.call("tools/list")).result
    names = [tool["name"] for tool in listed["tools"]]
    assert names[:5] == ["list_agents", "get_run", "answer", "cancel", "search_conversations"]
    agents = (await api.http.get("/v1/agents")).json()["items"]
    assert names[5:] == [f"ask_{agent['id']}" for agent in agents]
    assert listed["ttlMs"] > 0
    assert listed["cacheScope"] == "private"
    structured = (await client.tool("list_agents")).result["structuredContent"]
    assert [agent["tool"] for agent in structured["agents"]] == names[5:]


async def test_discovery_names_tasks_and_no_changes_of_lists(api: Api) -> None:
    found = (await McpRequests(api.http).call("server/discover")).result
    assert found["capabilities"]["extensions"] == {"io.modelcontextprotocol/tasks": {}}
    assert found["capabilities"]["tools"] == {"listChanged": False}
    assert "tasks" not in found["capabilities"]


async def test_a_client_without_tasks_gets_the_answer_itself(api: Api, worker: ManualWorker) -> None:
    calling = asyncio.create_task(McpRequests(api.http).tool("ask_nova", message="hello", wait_s=30))
    turn = await claimed(api, worker)
    await turn.finish("Hello!")
    result = (await calling).result
    assert result["resultType"] == "complete"
    assert result["content"] == [{"type": "text", "text": "Hello!"}]


async def test_a_call_that_takes_too_long_names_the_run_that_goes_on(api: Api) -> None:
    result = (await McpRequests(api.http).tool("ask_nova", message="hello", wait_s=0)).result
    run_id = result["structuredContent"]["run_id"]
    assert run_id in result["content"][0]["text"]
    assert not result.get("isError")


async def test_a_question_is_asked_before_the_result_and_the_call_made_again(api: Api, worker: ManualWorker) -> None:
    client = McpRequests(api.http, QUESTIONS)
    calling = asyncio.create_task(client.tool("ask_nova", message="hello", wait_s=30))
    turn = await claimed(api, worker)
    await turn.suspend("", QUESTION)
    await turn.emit(live.Waiting(kind="user", question="Which colour?", options=("red", "blue")))
    asked = (await calling).result
    assert asked["resultType"] == "input_required"
    assert asked["requestState"].startswith(f"{turn.claim.run_id}:")
    [wait_id] = asked["inputRequests"]
    again = {
        "name": "ask_nova",
        "arguments": {"message": "hello", "wait_s": 30},
        "requestState": asked["requestState"],
        "inputResponses": {wait_id: {"action": "accept", "content": {"answer": "blue"}}},
    }
    calling = asyncio.create_task(client.call("tools/call", again))
    await until(lambda: _is_queued(api, turn.claim.run_id), "the answer")
    await (await worker.claim(turn.claim.thread_id)).finish("Blue it is.")
    assert (await calling).result["content"][0]["text"] == "Blue it is."
    tampered = await client.call("tools/call", again | {"requestState": new_id("run")})
    assert tampered.error["code"] == -32602


async def test_a_message_that_joins_another_run_while_it_is_waited_for_gets_that_runs_answer(
    own_api: Api, own_worker: ManualWorker
) -> None:
    thread_id = await own_api.thread()
    active = await own_api.run(thread_id, "Paint the wall.")
    turn = await own_worker.claim(thread_id)
    joined = await own_api.run(thread_id, "Blue, please.", on_busy="steer")
    call = {"name": "get_run", "arguments": {"run_id": joined, "wait_s": 600}, "_meta": {"progressToken": 7}}
    got: list[Any] = []

    async def read() -> None:
        async with McpRequests(own_api.http).open("tools/call", call) as messages:
            async for message in messages:
                got.append(message)  # noqa: PERF401 - the test looks at what has come

    reading = asyncio.create_task(read())
    await pass_time(10)
    await until(lambda: len(got) == 1, "that it is waited for")
    await turn.commit("I begin.")
    turn.seq += 1
    end = live.StreamEnd(run_id=joined, final=True, status="merged", merged_into=active)
    own_worker.publisher.announce_end(joined, end)
    await turn.finish("The wall is blue.")
    await reading
    found = got[-1]["result"]
    assert (found["structuredContent"]["run_id"], found["content"][0]["text"]) == (active, "The wall is blue.")


async def test_progress_comes_every_ten_seconds_and_names_the_tool(own_api: Api, own_worker: ManualWorker) -> None:
    call = {"name": "ask_nova", "arguments": {"message": "hello", "wait_s": 600}, "_meta": {"progressToken": 7}}
    got: list[Any] = []

    async def read() -> None:
        async with McpRequests(own_api.http).open("tools/call", call) as messages:
            async for message in messages:
                # One by one: the test looks at what has come.
                got.append(message)  # noqa: PERF401

    reading = asyncio.create_task(read())
    turn = await claimed(own_api, own_worker)
    await pass_time(10)
    await until(lambda: len(got) == 1, "progress")
    await turn.open_call("Bash")
    await pass_time(10)
    await until(lambda: len(got) == 2, "more progress")
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    assert [message["method"] for message in got] == ["notifications/progress"] * 2
    told = [(message["params"]["progress"], message["params"]["message"]) for message in got]
    assert told == [(10, "nova works on it."), (20, "nova uses Bash.")]


async def test_a_conversation_goes_on_with_its_own_agent_only(api: Api) -> None:
    client = McpRequests(api.http, TASKS)
    run_id = (await client.tool("ask_nova", message="hello")).result["taskId"]
    thread_id = await thread_of(api, run_id)
    next_run = (await client.tool("ask_nova", message="more", thread_id=thread_id)).result["taskId"]
    assert await thread_of(api, next_run) == thread_id
    other = next(agent["id"] for agent in (await api.http.get("/v1/agents")).json()["items"] if agent["id"] != "nova")
    assert (await client.tool(f"ask_{other}", message="more", thread_id=thread_id)).result["isError"]


async def test_bad_calls_say_what_is_wrong(api: Api) -> None:
    client = McpRequests(api.http)
    assert (await client.tool("ask_nobody", message="hello")).error["code"] == -32602
    assert (await client.tool("no_tool")).error["code"] == -32602
    wrong = (await client.tool("ask_nova", text="hello")).result
    assert wrong["isError"]
    assert "message" in wrong["content"][0]["text"]
    assert (await client.call("tools/list", {"cursor": "x"})).error["code"] == -32602
    assert (await client.call("resources/read", {"uri": "file:///etc/passwd"})).error["code"] == -32602


async def test_only_pages_of_the_server_or_of_named_origins_may_call(api: Api) -> None:
    client = McpRequests(api.http)
    for origin in ("https://evil.example", "null", "http://203.0.113.5"):
        refused = await client.call("tools/list", origin=origin)
        assert (refused.status, refused.message["jsonrpc"]) == (403, "2.0")
    assert (await client.call("tools/list", origin=api.url)).result


async def test_a_request_without_a_key_is_refused_in_the_form_of_the_protocol(api: Api) -> None:
    async with api.client(None) as http:
        refused = await McpRequests(http).call("tools/list")
    assert refused.status == 401
    assert refused.error["data"]["code"] == "unauthenticated"


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
async def test_an_older_client_shakes_hands_and_needs_no_session(api: Api, worker: ManualWorker, version: str) -> None:
    headers = {"accept": "application/json, text/event-stream"}
    hello = {
        "protocolVersion": version,
        "capabilities": {},
        "clientInfo": {"name": "old", "version": "1"},
    }
    first = await api.http.post("/mcp", json=_request("initialize", hello), headers=headers)
    assert "mcp-session-id" not in first.headers
    assert _last(first.text)["result"]["protocolVersion"] == version
    headers["mcp-protocol-version"] = version
    listed = await api.http.post("/mcp", json=_request("tools/list", {}), headers=headers)
    assert "ask_nova" in {tool["name"] for tool in _last(listed.text)["result"]["tools"]}
    call = _request("tools/call", {"name": "ask_nova", "arguments": {"message": "hello", "wait_s": 30}})
    calling = asyncio.create_task(api.http.post("/mcp", json=call, headers=headers))
    turn = await claimed(api, worker)
    await turn.suspend("", QUESTION)
    await turn.emit(live.Waiting(kind="user", question="Which colour?", options=("red", "blue")))
    told = _last((await calling).text)["result"]
    assert "Which colour?" in told["content"][0]["text"]
    assert told["structuredContent"]["status"] == "waiting"
    assert (await api.http.get("/mcp", headers=headers)).status_code == 405


async def _is_queued(api: Api, run_id: str) -> bool:
    return (await api.http.get(f"/v1/runs/{run_id}")).json()["status"] == "queued"


def _request(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def _last(text: str) -> Any:
    [*_, last] = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith(("data: ", "{"))]
    return json.loads(last)
