"""A client of AG-UI: a run that broke is requested again with its id, and comes from its beginning."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.history import DoorReading
from tests.chaos.runner.doors.exchange import Exchange, Json, data_of


@dataclass
class _Messages:
    """The messages of the agent as a front end has them."""

    texts: dict[str, str] = field(default_factory=dict[str, str])
    names: set[str] = field(default_factory=set[str])
    status: str | None = None

    def take(self, event: Json) -> None:
        """Apply an event."""
        match event:
            case {"type": "TEXT_MESSAGE_START", "messageId": str(message_id)}:
                self.names.add(message_id)
                self.texts[message_id] = ""
            case {"type": "TEXT_MESSAGE_CONTENT", "messageId": str(message_id), "delta": str(text)}:
                self.texts[message_id] += text
            case {"type": "TOOL_CALL_START", "toolCallId": str(call_id)}:
                self.names.add(call_id)
            case {"type": "MESSAGES_SNAPSHOT", "messages": list(messages)}:
                self._replace(messages)
            case {"type": "RUN_ERROR"}:
                self.status = "failed"
            case {"type": "RUN_FINISHED", "outcome": {"type": str(outcome)}}:
                self.status = outcome
            case _:
                pass

    def _replace(self, messages: list[Any]) -> None:
        self.texts = {
            message["id"]: message.get("content") or "" for message in messages if message["role"] == "assistant"
        }


async def follow_agent(exchange: Exchange, key: str, message: str) -> DoorReading:
    """Run an agent, and ask for the same run again until its stream has come whole."""
    said = {"id": f"message of {key}", "role": "user", "content": message}
    body = {"threadId": f"thread of {key}", "runId": key, "messages": [said], "protocolVersion": "1.0"}
    headers = {"accept": "text/event-stream"}
    while True:
        seen = _Messages()
        async with aclosing(exchange.stream(f"/ag-ui/{exchange.agent}", key, body, headers=headers)) as events:
            async for event in events:
                seen.take(data_of(event))
                if seen.status is not None:
                    break
        if seen.status is not None:
            break
    # Names of the door are made of the run's.
    run_id = next((f"run_{name.split('_')[1]}" for name in sorted(seen.names)), "")
    return DoorReading(0.0, "ag-ui", key, run_id, seen.status, "".join(seen.texts.values()))
