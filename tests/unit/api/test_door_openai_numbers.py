"""The numbers of a response's events: a client that is cut off anywhere has each text once."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, cast

import pytest

from api.doors.feed import ItemFeed
from api.doors.openai.responses import ResponseId
from api.doors.openai.writer import ResponseWriter, cursor_at
from api.doors.service import Door
from nova_workers.contracts.events import EventCursor
from nova_workers.domain.streams.rules.wire import LiveEvent
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
    """Joins the pieces of each text, and takes no number that it has."""

    def __init__(self) -> None:
        self.number = -1
        self.texts: dict[str, str] = {}
        self.done: list[tuple[str, str, str]] = []

    def take(self, event: dict[str, Any]) -> None:
        if event["sequence_number"] <= self.number:
            return
        self.number = event["sequence_number"]
        match event["type"]:
            case "response.output_item.added":
                self.texts[event["item"]["id"]] = ""
            case "response.output_text.delta":
                # It may resume before an item that the server takes for begun.
                self.texts[event["item_id"]] = self.texts.get(event["item_id"], "") + event["delta"]
            case "response.output_item.done" if event["item"]["status"] == "completed":
                item = event["item"]
                self.done.append((item["id"], item["content"][0]["text"], self.texts[item["id"]]))
            case _:
                pass


async def _sent(writer: ResponseWriter, feed: ItemFeed, flushes: list[list[LiveEvent]]) -> list[dict[str, Any]]:
    body = b""
    for events in flushes:
        body += await writer.write(await feed.take(events), events[-1].cursor)
    return [json.loads(line[6:]) for line in body.decode().splitlines() if line.startswith("data: ")]


@pytest.mark.parametrize("flush", [1, 3, 5, 9])
@pytest.mark.parametrize("again", [1, 9])
async def test_a_client_that_is_cut_off_anywhere_has_each_text_once(flush: int, again: int) -> None:
    absent, response_id = cast("Door", None), ResponseId(RUN)
    ledger = Ledger(_TURN)
    first = [_EVENTS[at : at + flush] for at in range(0, len(_EVENTS), flush)]
    sent = await _sent(ResponseWriter(absent, response_id), ItemFeed(RUN, ledger.read), first)
    for cut in range(1, len(sent) + 1):
        client = _Client()
        for event in sent[:cut]:
            client.take(event)
        after = cursor_at(client.number)
        writer = ResponseWriter(absent, response_id, after, held=client.number)
        feed = ItemFeed(RUN, ledger.read)
        await writer.begin(cast("Any", None), await feed.resume(after))
        rest = [event for event in _EVENTS if event.cursor.key() > after.key()]
        for event in await _sent(writer, feed, [rest[at : at + again] for at in range(0, len(rest), again)]):
            client.take(event)
        assert [done[1:] for done in client.done] == [("Looking.", "Looking.")], (
            flush,
            again,
            cut,
            sent[cut - 1],
            client.done,
        )
        assert list(client.texts.values()) == ["Looking.", "Yes."], cut
