"""Requests of the Model Context Protocol as they are on the wire."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2

from nova_workers.cli.talk.mcp_relay import Relay
from nova_workers.contracts.waits import AskUser
from nova_workers.domain.waits.sql.suspend import NewWait
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import ManualWorker, Turn
from tests.support.waiting import until

Json = dict[str, Any]

TASKS: Json = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
QUESTIONS: Json = {"elicitation": {"form": {}}}
BOTH: Json = TASKS | QUESTIONS
MODERN = "2026-07-28"
QUESTION = NewWait("call_0", AskUser(question="Which colour?", options=("red", "blue")))
_NAMES = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}


@dataclass(frozen=True)
class Reply:
    """The end of a response, with the notifications before it."""

    status: int
    message: Json
    notifications: list[Json] = field(default_factory=list[Json])

    @property
    def result(self) -> Json:
        """The result; the response has no error."""
        assert "error" not in self.message, self.message
        return self.message["result"]

    @property
    def error(self) -> Json:
        """The error; the response has no result."""
        assert "result" not in self.message, self.message
        return self.message["error"]


@dataclass(frozen=True)
class McpRequests:
    """Sends requests without handshake, of a client with given capabilities."""

    http: httpx2.AsyncClient
    capabilities: Json = field(default_factory=dict[str, Any])

    async def call(self, method: str, params: Json | None = None, **headers: str) -> Reply:
        """Send a request, and return its response."""
        async with self.open(method, params, **headers) as messages:
            notifications: list[Json] = []
            async for message in messages:
                if "method" not in message:
                    return Reply(message.pop("_status"), message, notifications)
                notifications.append(message)
        raise AssertionError(f"no response: {notifications}")

    async def tool(self, name: str, meta: Json | None = None, **arguments: object) -> Reply:
        """Call a tool."""
        return await self.call("tools/call", {"name": name, "arguments": arguments, "_meta": meta or {}})

    async def task(self, task_id: str) -> Json:
        """Return the state of a task."""
        return (await self.call("tasks/get", {"taskId": task_id})).result

    @asynccontextmanager
    async def open(
        self, method: str, params: Json | None = None, **headers: str
    ) -> AsyncGenerator[AsyncGenerator[Json]]:
        """Send a request, and give the messages of its response as they come."""
        sent, body = request_of(method, params, self.capabilities)
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.http.stream("POST", "/mcp", json=body, headers=sent) as response:
            yield _messages(response)


def request_of(method: str, params: Json | None, capabilities: Json) -> tuple[dict[str, str], Json]:
    """Return the headers and the body of a request without handshake."""
    given = dict(params or {})
    given["_meta"] = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": capabilities,
        **given.get("_meta", {}),
    }
    sent = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": MODERN,
        "mcp-method": method,
    }
    if (named := _NAMES.get(method)) is not None:
        sent["mcp-name"] = str(given[named])
    return sent, {"jsonrpc": "2.0", "id": 1, "method": method, "params": given}


async def _messages(response: httpx2.Response) -> AsyncGenerator[Json]:
    if not response.headers.get("content-type", "").startswith("text/event-stream"):
        yield json.loads(await response.aread()) | {"_status": response.status_code}
        return
    async for line in response.aiter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: ")) | {"_status": response.status_code}


class RelayClient:
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
        return await self.send(request_id, method, **params)

    def send(self, request_id: int, method: str, **params: Any) -> Awaitable[Any]:
        """Send a request, and give its response when it has come."""
        self._sent.put_nowait({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
        return until(lambda: next((each for each in self.got if each.get("id") == request_id), None))

    async def close(self) -> None:
        """End the client's side."""
        self._sent.put_nowait(None)
        await self._relaying


async def begun(api: Api, worker: ManualWorker, capabilities: Json = BOTH) -> tuple[McpRequests, str, Turn]:
    """Call an agent as a client that takes tasks; a worker claims the run."""
    client = McpRequests(api.http, capabilities)
    made = (await client.tool("ask_nova", message="hello")).result
    assert made["resultType"] == "task", made
    return client, made["taskId"], await worker.claim(await thread_of(api, made["taskId"]))


async def claimed(api: Api, worker: ManualWorker) -> Turn:
    """Claim the run of the only open call."""
    found: list[Json] = []

    async def is_there() -> bool:
        found[:] = (await api.http.get("/v1/runs", params={"status": "queued"})).json()["items"]
        return bool(found)

    await until(is_there, "the run")
    return await worker.claim(found[0]["thread_id"])


async def thread_of(api: Api, run_id: str) -> str:
    """Return the thread of a run, by the native API."""
    return (await api.http.get(f"/v1/runs/{run_id}")).json()["thread_id"]
