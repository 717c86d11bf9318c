"""`nova mcp` gives clients on stdio what the API answers, also over the death of an API process."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.integration.api.conftest import Api
from tests.integration.api.doors.mcp_requests import MODERN, TASKS, RelayClient
from tests.requirements import proves


async def test_a_client_of_each_version_is_served(api: Api) -> None:
    client = RelayClient(api.url, api.tenant.key)
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
    client = RelayClient(api.url, "nova_wrong")
    assert (await client.ask(1, "tools/list"))["error"]["data"]["code"] == "unauthenticated"
    await client.close()
