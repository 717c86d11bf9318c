"""A client of the MCP server that takes tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import httpx2

from nova_workers.base.vocabulary import DoorName
from tests.integration.api.doors.door_clients import TEXT, Ability, DoorEvent, DoorRequest, Outcome, Refusal
from tests.integration.api.doors.mcp_requests import TASKS, request_of

_STATES: Final[Mapping[str, Literal["working", "waiting", "failed", "canceled"]]] = {
    "working": "working",
    "input_required": "waiting",
    "cancelled": "canceled",
    "failed": "failed",
}


@dataclass(frozen=True)
class McpDoor:
    """Calls the tool of an agent, and reads and cancels its task."""

    name: str = "mcp"
    door: DoorName = "mcp"
    prefix: str = "/mcp"
    can: frozenset[Ability] = frozenset({"read", "cancel", "continue", "answer"})

    def requests(self, run_id: str) -> Sequence[DoorRequest]:
        """Return a request of each method and of each tool. Lists are left out: they have what a key may use."""
        task = {"taskId": run_id}
        return (
            self.message(),
            _tool("list_agents"),
            _tool("get_run", run_id=run_id),
            _tool("answer", run_id=run_id, text="yes"),
            _tool("cancel", run_id=run_id),
            _tool("search_conversations", query="hello"),
            _request("tasks/get", task),
            _request("tasks/update", task | {"inputResponses": {}}),
            _request("tasks/cancel", task),
            self.stream(run_id),
            _request("resources/read", {"uri": "nova://threads/thr_01ARZ3NDEKTSV4RRFFQ69G5FAV"}),
        )

    def message(
        self, text: str = TEXT, *, agent: str = "nova", request_id: str | None = None, thread_id: str | None = None
    ) -> DoorRequest:
        """Return a call of the agent's tool."""
        named = {"request_id": request_id, "thread_id": thread_id}
        given = {name: value for name, value in named.items() if value is not None}
        return _tool(f"ask_{agent}", message=text, **given)

    async def post(self, http: httpx2.AsyncClient, request: DoorRequest) -> httpx2.Response:
        """Send it; a task comes at once."""
        return await request.send(http)

    async def run_id_of(self, http: httpx2.AsyncClient, answer: httpx2.Response) -> str:
        """Return the task."""
        result = answer.json()["result"]
        assert result["resultType"] == "task", result
        return result["taskId"]

    def stream(self, run_id: str) -> DoorRequest:
        """Return a subscription to a task."""
        return _request("subscriptions/listen", {"notifications": {"taskIds": [run_id]}})

    async def read(self, http: httpx2.AsyncClient, run_id: str) -> httpx2.Response:
        """Get the task."""
        return await _request("tasks/get", {"taskId": run_id}).send(http)

    async def cancel(self, http: httpx2.AsyncClient, run_id: str) -> httpx2.Response:
        """Cancel the task."""
        return await _request("tasks/cancel", {"taskId": run_id}).send(http)

    async def answer(self, http: httpx2.AsyncClient, run_id: str, wait_id: str, text: str) -> httpx2.Response:
        """Give the input that the task requires."""
        given = {wait_id: {"action": "accept", "content": {"answer": text}}}
        return await _request("tasks/update", {"taskId": run_id, "inputResponses": given}).send(http)

    async def events(self, http: httpx2.AsyncClient, run_id: str, after: str | None = None) -> list[DoorEvent]:
        """Fail: a subscription has states of tasks, the present one first, and no events after which to resume."""
        raise NotImplementedError

    def outcome_of(self, answer: httpx2.Response) -> Outcome:
        """Return the state of a task, and the text of its result."""
        task: dict[str, Any] = answer.json()["result"]
        if task["status"] != "completed":
            return Outcome(_STATES[task["status"]], "")
        result = task["result"]
        return Outcome("failed" if result["isError"] else "succeeded", result["structuredContent"]["text"])

    def refusal_of(self, answer: httpx2.Response) -> Refusal:
        """Return what a result of a tool says, or an error. Only those that come before the server have a status."""
        message: dict[str, Any] = answer.json()
        assert message["jsonrpc"] == "2.0"
        if "result" in message:
            assert message["result"]["isError"], message
            said = message["result"]["structuredContent"]
        else:
            assert message["error"]["message"]
            said = message["error"].get("data") or {}
        return Refusal(said.get("code"), said.get("field"), said.get("status"))


def _tool(name: str, **arguments: Any) -> DoorRequest:
    return _request("tools/call", {"name": name, "arguments": arguments})


def _request(method: str, params: dict[str, Any]) -> DoorRequest:
    headers, body = request_of(method, params, TASKS)
    return DoorRequest("POST", "/mcp", body, headers)
