"""Relays the Model Context Protocol between stdio and the API. It adds nothing but what HTTP needs, and repetition.

The API keeps no session, so a request whose connection broke, or whose API process was killed, is sent again. A call of
a tool has an id of its own, so that it is carried out once.
"""

import asyncio
import json
import time
from base64 import b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final
from uuid import uuid4

import httpx2

from nova_workers.base.release import release
from nova_workers.base.stopping import stop_tasks
from nova_workers.client.retry import Retry

Json = dict[str, Any]

PATH = "/mcp"
_REQUEST_ID: Final = "nova-workers/request-id"
_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_TASK: Final = "notifications/tasks"
_ENDED_TASKS: Final = frozenset({"completed", "failed", "cancelled"})
_INVALID_PARAMS: Final = -32602
_INTERNAL_ERROR: Final = -32603
_NAMES: Final[Mapping[str, str]] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""Which parameter of a method a header repeats. The SDK's table lacks tasks, and the SDK is an extra of the API's: this
program needs nothing but what the client needs."""
_UNAVAILABLE: Final = frozenset({502, 503, 504})
_SILENCE_S: Final = 60.0
"""The API sends a heartbeat every 15 s once a response has begun, and begins it within 15 s."""


class Relay:
    """Sends what a client writes to the API, and gives it what the API answers."""

    def __init__(
        self, url: str, api_key: str | None, write: Callable[[Json], Awaitable[None]], *, retry: Retry | None = None
    ) -> None:
        """Take the API's address and key, and what writes a message to the client."""
        headers = {"User-Agent": f"nova-mcp/{release()}", "Accept": "application/json, text/event-stream"}
        if api_key:
            headers["Authorization"] = f"Bearer {api_key}"
        timeout = httpx2.Timeout(30.0, read=_SILENCE_S)
        self._http = httpx2.AsyncClient(base_url=url, headers=headers, timeout=timeout)
        self._write = write
        self._retry = retry or Retry()
        self._negotiated: str | None = None
        """The version of a handshake."""
        self._running: dict[str | int, asyncio.Task[None]] = {}

    async def run(self, messages: AsyncGenerator[Json]) -> None:
        """Relay until the client closes its side. Runs that it began go on."""
        try:
            async for message in messages:
                await self._take(message)
        finally:
            await stop_tasks(tuple(self._running.values()))
            await self._http.aclose()

    async def _take(self, message: Json) -> None:
        method, request_id = message.get("method"), message.get("id")
        if method == "notifications/cancelled":
            canceled = _object(message.get("params")).get("requestId")
            running = self._running.get(canceled) if isinstance(canceled, str | int) else None
            if running is not None:
                running.cancel()
        if not isinstance(method, str) or not isinstance(request_id, str | int):
            # Notifications and answers mean nothing to a server without sessions.
            return
        task = asyncio.create_task(self._relay(method, request_id, message))
        if method == "initialize":
            # What follows needs the version.
            await asyncio.wait((task,))
            return
        self._running[request_id] = task
        task.add_done_callback(lambda _: self._running.pop(request_id, None))

    async def _relay(self, method: str, request_id: str | int, message: Json) -> None:
        if (body := _body(method, message)) is None:
            await self._fail(request_id, _INVALID_PARAMS, "params and their _meta must be objects.")
            return
        failures, followed = 0, _Followed()
        while True:
            began_s = time.monotonic()
            try:
                async for answer in self._send(method, body):
                    if "method" in answer:
                        if followed.is_news(answer):
                            await self._write(answer)
                    elif "error" in answer or not followed.open_tasks:
                        # An answer that came before the API read the request does not name it.
                        await self._write({**answer, "id": request_id})
                        return
                failure = "the response broke off"
            except httpx2.TransportError as error:
                failure = f"{type(error).__name__}: {error}"
            except (httpx2.RequestError, ValueError) as error:
                # Neither a request that cannot be sent nor an answer that cannot be read is another one the next time.
                await self._fail(request_id, _INTERNAL_ERROR, f"The request failed: {type(error).__name__}: {error}")
                return
            # A subscription may live for weeks, and outlives any number of restarts.
            failures = 1 if time.monotonic() - began_s > _SILENCE_S else failures + 1
            if failures >= self._retry.attempts:
                await self._fail(request_id, _INTERNAL_ERROR, f"The API does not answer: {failure}")
                return
            await asyncio.sleep(self._retry.delay_s(failures))

    async def _fail(self, request_id: str | int, code: int, message: str) -> None:
        await self._write({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}})

    async def _send(self, method: str, body: Json) -> AsyncGenerator[Json]:
        """Send a request, and yield the messages of its response; none if the API is unavailable."""
        headers = self._headers(method, body["params"])
        async with self._http.stream("POST", PATH, json=body, headers=headers) as response:
            if response.status_code in _UNAVAILABLE:
                return
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                yield self._noted(method, _answer(response.status_code, await response.aread()))
                return
            # Its lines end at line feeds alone. Texts have other characters that `aiter_lines` takes for ends of lines.
            async for event in httpx2.EventSource(response, max_event_size=None):
                if event.data:
                    yield self._noted(method, _object(json.loads(event.data)))

    def _noted(self, method: str, answer: Json) -> Json:
        if method == "initialize" and "result" in answer:
            self._negotiated = _object(answer["result"]).get("protocolVersion")
        return answer

    def _headers(self, method: str, params: Json) -> dict[str, str]:
        version = params.get("_meta", {}).get(_VERSION)
        if version is None:
            return {} if self._negotiated is None else {"MCP-Protocol-Version": self._negotiated}
        headers = {"MCP-Protocol-Version": str(version), "Mcp-Method": method}
        if (name := params.get(_NAMES.get(method, ""))) is not None:
            headers["Mcp-Name"] = _header(str(name))
        return headers


class _Followed:
    """What a client was sent of a subscription, over all its connections."""

    def __init__(self) -> None:
        self.open_tasks: frozenset[str] = frozenset()
        """The tasks whose end it waits for: an API process that stops ends a subscription before them."""
        self._is_acknowledged = False

    def is_news(self, notification: Json) -> bool:
        """Take a notification, and return whether the client needs it."""
        params = _object(notification.get("params"))
        if notification["method"] == _ACKNOWLEDGED:
            was_acknowledged, self._is_acknowledged = self._is_acknowledged, True
            self.open_tasks = frozenset(_object(params.get("notifications")).get("taskIds") or ())
            return not was_acknowledged
        if notification["method"] == _TASK and params.get("status") in _ENDED_TASKS:
            self.open_tasks -= {str(params.get("taskId"))}
        return True


def _body(method: str, message: Json) -> Json | None:
    """Return the request that is sent for one of the client's; None if it has not the form of one."""
    params = message.get("params") or {}
    meta = _object(params).get("_meta") or {}
    if not isinstance(params, dict) or not isinstance(meta, dict):
        return None
    if method == "tools/call":
        meta = {_REQUEST_ID: uuid4().hex, **meta}
    return {**message, "params": {**params, "_meta": meta} if meta else params}


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _answer(status: int, content: bytes) -> Json:
    try:
        answer = json.loads(content)
    except ValueError:
        answer = None
    if isinstance(answer, dict) and ("result" in answer or "error" in answer):
        return answer
    hint = " Does NOVA_DOORS of the API name mcp?" if status == HTTPStatus.NOT_FOUND else ""
    return {
        "jsonrpc": "2.0",
        "error": {"code": _INTERNAL_ERROR, "message": f"The API answered with status {status}.{hint}"},
    }


def _header(value: str) -> str:
    """Return a value as a header may have it: in base64 where it is not plain ASCII."""
    if value.isascii() and value.isprintable() and value == value.strip() and not value.startswith("=?base64?"):
        return value
    return f"=?base64?{b64encode(value.encode()).decode('ascii')}?="
