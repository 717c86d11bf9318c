"""`nova mcp` gives clients on stdio what the API answers, also over the death of an API process."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.integration.api.conftest import Api, served
from tests.integration.api.doors.mcp_requests import MODERN, TASKS, RelayClient, claimed
from tests.integration.api.manual_worker import ManualWorker
from tests.integration.api.shared_servers import SharedServers
from tests.requirements import proves
from tests.support.waiting import until

_META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": TASKS,
}


async def test_a_client_of_each_version_is_served(api: Api) -> None:
    client = RelayClient(api.url, api.tenant.key)
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}}
    assert (await client.ask(1, "initialize", **hello))["result"]["protocolVersion"] == "2025-11-25"
    assert "ask_nova" in {tool["name"] for tool in (await client.ask(2, "tools/list"))["result"]["tools"]}
    made = await client.ask(3, "tools/call", name="ask_nova", arguments={"message": "hello"}, _meta=_META)
    task = await client.ask(4, "tasks/get", taskId=made["result"]["taskId"], _meta=_META)
    assert task["result"]["status"] == "working"
    await client.close()


@proves("doors.mcp-relay")
async def test_a_call_whose_response_broke_off_is_sent_again_and_runs_once(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = RelayClient(api.url, api.tenant.key)
    send, calls = httpx2.AsyncClient.send, 0

    async def lose_the_first(self: Any, request: Any, **options: Any) -> Any:
        nonlocal calls
        response = await send(self, request, **options)
        calls += 1
        if calls == 1:
            await response.aread()
            raise httpx2.RemoteProtocolError("cut")
        return response

    monkeypatch.setattr(httpx2.AsyncClient, "send", lose_the_first)
    made = await client.ask(1, "tools/call", name="ask_nova", arguments={"message": "hello"}, _meta=_META)
    monkeypatch.undo()
    assert made["result"]["resultType"] == "task"
    runs = (await api.http.get("/v1/runs")).json()["items"]
    assert [run["id"] for run in runs] == [made["result"]["taskId"]]
    await client.close()


async def test_a_wrong_key_is_said(api: Api) -> None:
    client = RelayClient(api.url, "nova_wrong")
    assert (await client.ask(1, "tools/list"))["error"]["data"]["code"] == "unauthenticated"
    await client.close()


async def test_a_text_with_characters_that_end_lines_comes_whole(api: Api, worker: ManualWorker) -> None:
    client = RelayClient(api.url, api.tenant.key)
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}}
    await client.ask(1, "initialize", **hello)
    calling = client.send(2, "tools/call", name="ask_nova", arguments={"message": "hello", "wait_s": 30})
    text = "one\u2028two\u2029three\x85four"
    await (await claimed(api, worker)).finish(text)
    assert (await calling)["result"]["content"] == [{"type": "text", "text": text}]
    await client.close()


@pytest.mark.parametrize(
    ("headers", "content"),
    [
        ({"content-type": "text/event-stream"}, b"data: {\n\n"),
        ({"content-encoding": "gzip"}, b"no gzip"),
        ({}, b"[]"),
    ],
    ids=["stream", "encoding", "body"],
)
async def test_an_answer_that_cannot_be_read_is_an_error(
    monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], content: bytes
) -> None:
    async def answer(self: Any, request: Any, **options: Any) -> Any:
        return httpx2.Response(200, headers=headers, stream=httpx2.ByteStream(content), request=request)

    monkeypatch.setattr(httpx2.AsyncClient, "send", answer)
    client = RelayClient("http://127.0.0.1:1", "key")
    assert (await client.ask(1, "tools/list"))["error"]["code"] == -32603
    await client.close()


async def test_a_request_that_cannot_be_sent_is_an_error(api: Api) -> None:
    client = RelayClient(api.url, api.tenant.key)
    assert (await client.ask(1, "tools/call", name="x", arguments={}, _meta=[1]))["error"]["code"] == -32602
    surrogate = await client.ask(2, "tools/call", name="ask_nova", arguments={"message": "\ud800"})
    assert surrogate["error"]["code"] == -32603
    await client.close()


async def test_a_subscription_goes_on_with_another_process(
    api: Api, worker: ManualWorker, shared: SharedServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopping, state = shared.enter(served(shared.settings.model_copy(update={"doors": ("mcp",)})))
    client = RelayClient(stopping, api.tenant.key)
    made = await client.ask(1, "tools/call", name="ask_nova", arguments={"message": "hello"}, _meta=_META)
    wanted = {"taskIds": [made["result"]["taskId"]]}
    listening = client.send(2, "subscriptions/listen", notifications=wanted, _meta=_META)
    await until(lambda: len(client.got) == 3, "the present state")
    send, port = httpx2.AsyncClient.send, httpx2.URL(api.url).port

    async def reach_another(self: Any, request: Any, **options: Any) -> Any:
        request.url = request.url.copy_with(port=port)
        return await send(self, request, **options)

    monkeypatch.setattr(httpx2.AsyncClient, "send", reach_another)
    state.watch.close()
    await until(lambda: len(client.got) == 4, "the present state again")
    monkeypatch.undo()
    await (await claimed(api, worker)).finish("Hello!")
    assert (await listening)["result"]["resultType"] == "complete"
    states = [message for message in client.got if message.get("method") == "notifications/tasks"]
    assert states[0] == states[1]
    assert states[-1]["params"]["status"] == "completed"
    methods = [message.get("method") for message in client.got]
    assert methods.count("notifications/subscriptions/acknowledged") == 1
    await client.close()
