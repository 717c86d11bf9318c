"""A client of LangGraph's server: it streams a run, and joins the stream again after the last id."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from tests.chaos.history import DoorReading
from tests.chaos.runner.doors.exchange import Exchange, Json, data_of

_RUNS: Final = "/langgraph/runs/stream"
_MODE: Final = "messages-tuple"


@dataclass
class _Run:
    """A run as a client joins it: chunks are added to the message that they are of, and a removal takes it away."""

    place: str | None = None
    last_id: str | None = None
    is_over: bool = False
    texts: dict[str, str] = field(default_factory=dict[str, str])

    def begin(self, headers: Mapping[str, str]) -> None:
        """Take the place at which the run is found."""
        self.place = headers["content-location"]

    def take(self, name: str, data: Json | list[Json] | None) -> None:
        """Apply an event."""
        match name, data:
            case "end", _:
                self.is_over = True
            case "messages", [{"type": "remove", "id": str(message_id)}, _]:
                self.texts.pop(message_id, None)
            case "messages", [{"type": "AIMessageChunk", "id": str(message_id), "content": str(text)}, _]:
                self.texts[message_id] = self.texts.get(message_id, "") + text
            case _:
                pass


async def stream_run(exchange: Exchange, key: str, message: str) -> DoorReading:
    """Follow a run, over connections that break; go on after the last event that has an id."""
    seen = _Run()
    said = {"messages": [{"role": "user", "content": message}]}
    body = {"assistant_id": exchange.agent, "input": said, "stream_mode": [_MODE], "on_completion": "keep"}
    while not seen.is_over:
        if seen.place is None or seen.last_id is None:
            stream = exchange.stream(_RUNS, key, body, headers={"Idempotency-Key": key}, begun=seen.begin)
            seen.texts.clear()
        else:
            after = {"Last-Event-ID": seen.last_id}
            stream = exchange.stream(f"/langgraph{seen.place}/stream?stream_mode={_MODE}", key, headers=after)
        async with aclosing(stream) as events:
            async for event in events:
                seen.last_id = event.id or seen.last_id
                seen.take(event.event, data_of(event))
                if seen.is_over:
                    break
    run = await exchange.until_answered(f"/langgraph{seen.place}", key, run_of=lambda found: found["run_id"])
    return DoorReading(0.0, "langgraph", key, run["run_id"], run["status"], "".join(seen.texts.values()))
