"""A client of A2A: it sends a message, and subscribes to its task again after each break."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from tests.chaos.history import DoorReading
from tests.chaos.runner.doors.exchange import Exchange, Json, data_of

_VERSION: Final = {"A2A-Version": "1.0"}
_ENDS: Final = {"TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED"}
_ANSWER: Final = "answer"


@dataclass
class _Task:
    """A task as a client has it from its events."""

    id: str | None = None
    state: str = ""
    answer: str = ""

    def take(self, event: Json) -> None:
        """Apply an event."""
        match event:
            case {"task": dict(task)}:
                self.set(task)
            case {"statusUpdate": {"status": {"state": str(state)}}}:
                self.state = state
            case {"artifactUpdate": {"artifact": {"artifactId": "answer"} as artifact} as update}:
                text = _text(artifact)
                self.answer = self.answer + text if update.get("append") else text
            case _:
                pass

    def set(self, task: Json) -> None:
        """Take a task as it is."""
        self.id, self.state = task["id"], task["status"]["state"]
        self.answer = "".join(_text(each) for each in task.get("artifacts", ()) if each["artifactId"] == _ANSWER)


async def subscribe_to_task(exchange: Exchange, key: str, message: str) -> DoorReading:
    """Send a message, and follow its task over connections that break."""
    path = f"/a2a/{exchange.agent}"
    said = {"messageId": key, "role": "ROLE_USER", "parts": [{"text": message}]}
    seen = _Task()
    while seen.state not in _ENDS:
        if seen.id is None:
            call = _call("SendStreamingMessage", {"message": said})
        else:
            # A task that has ended takes no subscription.
            found = await exchange.until_answered(
                path,
                key,
                _call("GetTask", {"id": seen.id}),
                headers=_VERSION,
                run_of=lambda it: it.get("result", {}).get("id"),
            )
            seen.set(found["result"])
            if seen.state in _ENDS:
                break
            call = _call("SubscribeToTask", {"id": seen.id})
        async with aclosing(exchange.stream(path, key, call, headers=_VERSION)) as events:
            async for event in events:
                seen.take(data_of(event).get("result", {}))
                if seen.state in _ENDS:
                    break
    assert seen.id is not None
    return DoorReading(0.0, "a2a", key, seen.id, seen.state, seen.answer)


def _call(method: str, params: Json) -> Json:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def _text(artifact: Json) -> str:
    return "".join(part.get("text", "") for part in artifact["parts"])
