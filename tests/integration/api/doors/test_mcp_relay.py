"""`nova mcp` gives clients on stdio what the API answers, also over the death of an API process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import httpx2
import pytest

from nova_workers.cli.talk.mcp_relay import Relay
from tests.integration.api.conftest import Api
from tests.integration.api.doors.mcp_requests import MODERN, TASKS
from tests.requirements import proves
from tests.support.waiting import until


class _Client:
    """A client on stdio."""

    def __init__(self, url: str, key: str) -> None:
        self.got: list[Any] = []
        self._sent: asyncio.Queue[Any] = asyncio.Queue()
        self.relay = Relay(url, key, self._take)
        self._relaying = asyncio.create_task(self.relay.run(self._messages()))

    async def _take(self, message: Any) -> None:
        self.got.append(message)

    async def _messages(self) -> AsyncGenerator[Any]:
        while (message := await self._sent.get()) is not None:
            yield message

    async def ask(self, request_id: int, method: str, **params: Any) -> Any:
        """Send a request, and return its response."""
        self._sent.put_nowait({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
        return await until(lambda: next((each for each in self.got if each.get("id") == request_id), None))

    async def close(self) -> None:
        """End the client's side."""
        self._sent.put_nowait(None)
        await self._relaying


async def test_a_client_of_each_version_is_served(api: Api) -> None:
    client = _Client(api.url, api.tenant.key)
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}}
    assert (await client.ask(1, "initialize", **hello))["result"]["protocolVersion"] == "2025-11-25"
    assert "ask_nova" in {tool["name"] for tool in (await client.ask(2, "tools/list"))["result"]["tools"]}
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": TASKS,
    }
    made = await client.ask(3, "tools/call", name="ask_nova", arguments={"message": "hello"}, _meta=meta)
    task = await client.ask(4, "tasks/get", taskId=made["result"]["taskId"], _meta=meta)
    assert task["result"]["status"] == "working"
    await client.close()


@proves("doors.mcp-relay")
async def test_a_call_whose_response_broke_off_is_sent_again_and_runs_once(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = _Client(api.url, api.tenant.key)
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
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": TASKS,
    }
    made = await client.ask(1, "tools/call", name="ask_nova", arguments={"message": "hello"}, _meta=meta)
    monkeypatch.undo()
    assert made["result"]["resultType"] == "task"
    runs = (await api.http.get("/v1/runs")).json()["items"]
    assert [run["id"] for run in runs] == [made["result"]["taskId"]]
    await client.close()


async def test_a_wrong_key_is_said(api: Api) -> None:
    client = _Client(api.url, "nova_wrong")
    assert (await client.ask(1, "tools/list"))["error"]["data"]["code"] == "unauthenticated"
    await client.close()
