"""Clients of OpenAI's Responses API: one follows a stream and resumes it, one asks again with the same id."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from tests.chaos.history import DoorReading
from tests.chaos.runner.doors.exchange import Exchange, Json, data_of

_RESPONSES: Final = "/openai/v1/responses"
_ENDS: Final = ("response.completed", "response.failed", "response.incomplete")


@dataclass
class _Response:
    """A streamed response as a client joins it from its events."""

    id: str | None = None
    number: int = -1
    texts: dict[str, str] = field(default_factory=dict[str, str])
    done: dict[str, str] = field(default_factory=dict[str, str])
    twice: list[str] = field(default_factory=list[str])
    status: str | None = None

    def take(self, event: Json) -> None:
        """Apply an event, unless the client has it: what came in one piece with the last one comes again."""
        if event["sequence_number"] <= self.number:
            return
        self.number = event["sequence_number"]
        item = event.get("item") or {}
        match event["type"]:
            case "response.created":
                self.id = event["response"]["id"]
            case "response.output_item.added" if item["type"] == "message":
                self.texts[item["id"]] = ""
            case "response.output_text.delta":
                self.texts[event["item_id"]] = self.texts.get(event["item_id"], "") + event["delta"]
            case "response.output_item.done" if item["type"] == "message" and item["status"] == "completed":
                self._done(item)
            case kind if kind in _ENDS:
                self.status = event["response"]["status"]
            case _:
                pass

    def _done(self, item: Json) -> None:
        whole = "".join(part["text"] for part in item["content"])
        joined = self.texts.pop(item["id"], "")
        if item["id"] in self.done:
            self.twice.append(f"{item['id']} was done twice")
        # Pieces that it was given belong to the text, in order and each once.
        if not whole.startswith(joined):
            self.twice.append(f"{item['id']} has the pieces {joined!r} and the text {whole!r}")
        self.done[item["id"]] = whole


async def stream_response(exchange: Exchange, key: str, message: str) -> DoorReading:
    """Follow a response, over connections that break; go on after the last event."""
    seen = _Response()
    while seen.status is None:
        if seen.id is None:
            body = {**_response(exchange, key, message), "stream": True}
            stream = exchange.stream(_RESPONSES, key, body, headers={"Idempotency-Key": key})
        else:
            stream = exchange.stream(f"{_RESPONSES}/{seen.id}?stream=true&starting_after={seen.number}", key)
        async with aclosing(stream) as events:
            async for event in events:
                if event.data != "[DONE]":
                    seen.take(data_of(event))
                if seen.status is not None:
                    break
    assert seen.id is not None
    texts = "".join(seen.done.values())
    return DoorReading(0.0, "openai-stream", key, _run_of(seen.id), seen.status, texts, seen.twice)


async def await_response(exchange: Exchange, key: str, message: str) -> DoorReading:
    """Ask for a response whole, and again with the same id until it is there."""
    while True:
        response = await exchange.until_answered(
            _RESPONSES,
            key,
            _response(exchange, key, message),
            headers={"Idempotency-Key": key},
            run_of=lambda it: _run_of(it["id"]),
        )
        if response["status"] not in {"queued", "in_progress"}:
            break
        await exchange.pause()
    texts = [part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"]]
    return DoorReading(0.0, "openai-wait", key, _run_of(response["id"]), response["status"], "".join(texts))


def _response(exchange: Exchange, key: str, message: str) -> Json:
    return {"model": exchange.agent, "input": message, "metadata": {"key": key}}


def _run_of(response_id: str) -> str:
    return f"run_{response_id.removeprefix('resp_')}"
