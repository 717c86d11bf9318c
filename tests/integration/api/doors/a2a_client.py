"""Clients of A2A, for either binding."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import httpx2
import orjson

from nova_workers.base.vocabulary import DoorName
from tests.integration.api.doors.door_clients import TEXT, Ability, DoorEvent, DoorRequest, Outcome, Refusal

VERSION: Final = {"A2A-Version": "1.0"}

_STATES: Final[Mapping[str, Literal["working", "waiting", "succeeded", "failed", "canceled"]]] = {
    "TASK_STATE_SUBMITTED": "working",
    "TASK_STATE_WORKING": "working",
    "TASK_STATE_INPUT_REQUIRED": "waiting",
    "TASK_STATE_COMPLETED": "succeeded",
    "TASK_STATE_FAILED": "failed",
    "TASK_STATE_CANCELED": "canceled",
}


def message_of(text: str, message_id: str | None = None, **names: str | None) -> dict[str, Any]:
    """Return a message of a user; `names` are those of its context and its task."""
    known = {name: value for name, value in names.items() if value is not None}
    return {
        "messageId": message_id or secrets.token_hex(8),
        "role": "ROLE_USER",
        "parts": [{"text": text}],
        **known,
    }


def rpc(method: str, params: dict[str, Any], *, agent: str = "nova") -> DoorRequest:
    """Return a call of JSON-RPC."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return DoorRequest("POST", f"/a2a/{agent}", body, VERSION)


def events_of(body: bytes) -> list[dict[str, Any]]:
    """Return the elements of a stream of either binding."""
    frames = [frame for frame in body.decode().split("\n\n") if frame and not frame.startswith(":")]
    found = [orjson.loads(frame.removeprefix("data: ")) for frame in frames]
    return [each.get("result", each) for each in found]


@dataclass(frozen=True)
class A2aDoor:
    """Sends messages by JSON-RPC, and reads and cancels their tasks."""

    name: str = "a2a"
    door: DoorName = "a2a"
    prefix: str = "/a2a"
    can: frozenset[Ability] = frozenset({"read", "cancel", "continue", "answer"})

    def requests(self, run_id: str) -> Sequence[DoorRequest]:
        """Return a request of each method."""
        return (
            self.message(),
            rpc("SendStreamingMessage", {"message": message_of("hello")}),
            rpc("GetTask", {"id": run_id}),
            rpc("CancelTask", {"id": run_id}),
            rpc("GetExtendedAgentCard", {}),
            rpc("ListTasks", {}),
            self.stream(run_id),
            DoorRequest("GET", "/a2a/nova/.well-known/agent-card.json"),
        )

    def message(
        self, text: str = TEXT, *, agent: str = "nova", request_id: str | None = None, thread_id: str | None = None
    ) -> DoorRequest:
        """Return a call that sends a message, without waiting for its end."""
        message = message_of(text, request_id, contextId=thread_id)
        return rpc("SendMessage", {"message": message, "configuration": {"returnImmediately": True}}, agent=agent)

    async def post(self, http: httpx2.AsyncClient, request: DoorRequest) -> httpx2.Response:
        """Send it; the task comes at once."""
        return await request.send(http)

    async def run_id_of(self, http: httpx2.AsyncClient, answer: httpx2.Response) -> str:
        """Return the task."""
        assert "result" in answer.json(), answer.text
        return answer.json()["result"]["task"]["id"]

    def stream(self, run_id: str) -> DoorRequest:
        """Return a subscription to a task."""
        return rpc("SubscribeToTask", {"id": run_id})

    async def read(self, http: httpx2.AsyncClient, run_id: str) -> httpx2.Response:
        """Get the task."""
        return await rpc("GetTask", {"id": run_id}).send(http)

    async def cancel(self, http: httpx2.AsyncClient, run_id: str) -> httpx2.Response:
        """Cancel the task."""
        return await rpc("CancelTask", {"id": run_id}).send(http)

    async def answer(self, http: httpx2.AsyncClient, run_id: str, wait_id: str, text: str) -> httpx2.Response:
        """Send a message to the task."""
        message = message_of(text, taskId=run_id)
        return await rpc("SendMessage", {"message": message, "configuration": {"returnImmediately": True}}).send(http)

    async def events(self, http: httpx2.AsyncClient, run_id: str, after: str | None = None) -> list[DoorEvent]:
        """Fail: a subscription begins with the task as it is, and has no events after which to resume."""
        raise NotImplementedError

    def outcome_of(self, answer: httpx2.Response) -> Outcome:
        """Return the state of a task, and the text of its answer."""
        task: dict[str, Any] = answer.json()["result"]
        answers = [each for each in task.get("artifacts", []) if each["artifactId"] == "answer"]
        text = "".join(part["text"] for each in answers for part in each["parts"])
        return Outcome(_STATES[task["status"]["state"]], text)

    def refusal_of(self, answer: httpx2.Response) -> Refusal:
        """Return what an error says: of JSON-RPC, or of HTTP below an agent's address."""
        message: dict[str, Any] = answer.json()
        error = message["error"]
        assert error["message"]
        if "jsonrpc" in message:
            assert message["jsonrpc"] == "2.0"
            return _refusal(error["data"], None if answer.status_code == 200 else answer.status_code)
        assert error["code"] == answer.status_code
        return _refusal(error["details"], answer.status_code)


def _refusal(details: Sequence[dict[str, Any]], status: int | None) -> Refusal:
    info = details[0]
    assert re.fullmatch(r"[A-Z_]+", info["reason"])
    said = info["metadata"]
    violations = [each for detail in details for each in detail.get("fieldViolations", [])]
    return Refusal(said.get("code"), violations[0]["field"] if violations else None, status)
