"""The numbers of a response's events: a client that is cut off anywhere goes on as if it had not been."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from api.doors.feed import ItemFeed
from api.doors.openai.responses import ResponseId
from api.doors.openai.writer import ResponseWriter, cursor_at
from api.doors.service import Door
from nova_workers.contracts.events import EventCursor
from nova_workers.domain.streams.rules.wire import LiveEvent
from tests.requirements import proves
from tests.unit.api.test_door_items import RUN, WHOLE, Ledger, live, response, token

_TURN = replace(
    WHOLE,
    steps=1,
    messages=(
        WHOLE.messages[0],
        response(0, "Looking.", event="1-5"),
        replace(WHOLE.messages[2], event=EventCursor.parse("1-7")),
    ),
)
_EVENTS = live(
    {"type": "stream_start", "run_id": RUN, "thread_id": "thr_1", "attempt": 1, "agent_id": "nova"},
    token("Look"),
    token("ing."),
    {"type": "assistant_message", "text": "Looking.", "step": 0},
    {"type": "tool_status", "tool_call_id": "toolu_1", "tool_name": "weather", "status": "started"},
    {"type": "tool_status", "tool_call_id": "toolu_1", "tool_name": "weather", "status": "completed"},
    {"type": "step", "index": 0},
    token("Ye"),
    token("s."),
)


class _Client:
    """Joins the pieces of each text."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.texts: dict[str, str] = {}

    def take(self, event: dict[str, Any]) -> None:
        """Apply an event, which has a higher number than those before, and an item that began."""
        assert event["sequence_number"] > self.number
        match event["type"]:
            case "response.output_item.added":
                self.texts[event["item"]["id"]] = ""
            case "response.output_text.delta":
                self.texts[event["item_id"]] += event["delta"]
            case _:
                pass
        self.events.append(event)

    @property
    def number(self) -> int:
        """The number of its last event."""
        return self.events[-1]["sequence_number"] if self.events else -1

    @property
    def frame(self) -> list[dict[str, Any]]:
        """Its events but for pieces of text, which may come in one or in several."""
        return [event for event in self.events if not event["type"].endswith(".delta")]


async def _sent(writer: ResponseWriter, feed: ItemFeed, flushes: Sequence[Sequence[LiveEvent]]) -> list[dict[str, Any]]:
    body = b""
    for events in flushes:
        body += await writer.write(await feed.take(events), events[-1].cursor)
    return [json.loads(line[6:]) for line in body.decode().splitlines() if line.startswith("data: ")]


def _flushes(events: Sequence[LiveEvent], size: int) -> list[Sequence[LiveEvent]]:
    return [events[at : at + size] for at in range(0, len(events), size)]


@proves("doors.openai-resume")
@pytest.mark.parametrize("flush", [1, 3, 5, 9])
@pytest.mark.parametrize("again", [1, 9])
async def test_a_client_that_is_cut_off_anywhere_gets_what_would_have_come_without_a_break(
    flush: int, again: int
) -> None:
    absent, response_id = cast("Door", None), ResponseId(RUN)
    ledger = Ledger(_TURN)
    whole = _Client()
    for event in await _sent(ResponseWriter(absent, response_id), ItemFeed(RUN, ledger.read), _flushes(_EVENTS, flush)):
        whole.take(event)
    for cut in range(1, len(whole.events) + 1):
        client = _Client()
        for event in whole.events[:cut]:
            client.take(event)
        held = cursor_at(client.number)
        writer, feed = ResponseWriter(absent, response_id, held=client.number), ItemFeed(RUN, ledger.read)
        resumed = await feed.resume(held)
        assert await writer.begin(cast("Any", None), resumed.before) == b""
        due = [event for event in _EVENTS if event.cursor.key() > resumed.after.key()]
        had = [event for event in due if event.cursor.key() <= held.key()]
        for event in await _sent(writer, feed, [*_flushes(had, again), *_flushes(due[len(had) :], again)]):
            client.take(event)
        assert (client.frame, client.texts) == (whole.frame, whole.texts), (cut, whole.events[cut - 1])
