"""Items of a run: the same from its live events and from the ledger, however a follower comes and goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from api.doors.feed import Change, Delta, Done, Ended, ItemFeed, Paused, Started, Voided
from api.doors.items import (
    FileItem,
    MessageItem,
    QuestionItem,
    ReasoningItem,
    ToolCallItem,
    ToolResultItem,
    items_of,
    items_since,
    message_id,
    reasoning_id,
)
from nova_workers.contracts.content import text_block
from nova_workers.contracts.events import EventCursor
from nova_workers.contracts.waits import AskUser
from nova_workers.domain.streams.rules.wire import LiveEvent
from nova_workers.domain.threads.sql.items import StoredCall, StoredFile, StoredMessage, StoredWait, TurnContents

RUN = "run_01ARZ3NDEKTSV4RRFFQ69G5FAV"
QUERY = StoredMessage("query", None, 0, None, None, (text_block("Do I need a coat?"),))


def response(step: int, text: str, *, thought: str = "", event: str | None = None) -> StoredMessage:
    """Return the response of a step."""
    thinking = ({"type": "thinking", "thinking": thought},) if thought else ()
    cursor = None if event is None else EventCursor.parse(event)
    return StoredMessage("response", step, 2 * step + 1, None, cursor, (*thinking, text_block(text)))


def call(step: int, status: Any = "completed", call_id: str = "toolu_1", name: str = "weather") -> StoredCall:
    """Return a call."""
    result = (text_block("rain"),) if status == "completed" else None
    return StoredCall(call_id, name, {"city": "Oslo"}, status, step, result, None)


WHOLE = TurnContents(
    turn_id="turn_1",
    run_id=RUN,
    steps=2,
    messages=(
        QUERY,
        response(0, "Looking.", thought="Hm.", event="1-8"),
        StoredMessage("tool_results", 0, 2, None, EventCursor.parse("1-8"), ()),
        response(1, "Yes, a coat.", event="1-12"),
    ),
    calls=(call(0),),
)


class Ledger:
    """Stands in for the ledger at a point in time."""

    def __init__(self, contents: TurnContents | None = None) -> None:
        self.contents = contents
        self.reads = 0

    async def read(self, from_step: int | None) -> TurnContents | None:
        """Return what the turn has from a step on."""
        self.reads += 1
        if self.contents is None or from_step is None:
            return self.contents
        return replace(
            self.contents,
            messages=tuple(m for m in self.contents.messages if m.step is not None and m.step >= from_step),
            calls=tuple(c for c in self.contents.calls if c.step >= from_step),
        )


def live(*events: dict[str, Any], attempt: int = 1, first: int = 1) -> list[LiveEvent]:
    """Return events with their ids."""
    return [LiveEvent(EventCursor(attempt=attempt, seq=first + at), event) for at, event in enumerate(events)]


def token(text: str) -> dict[str, Any]:
    """Return a piece of the answer."""
    return {"type": "token", "text": text}


def end(*, final: bool = True, status: str = "succeeded") -> dict[str, Any]:
    """Return the end of a run, or of an attempt."""
    return {"type": "stream_end", "run_id": RUN, "final": final, "status": status}


EVENTS = live(
    {"type": "stream_start", "run_id": RUN, "thread_id": "thr_1", "attempt": 1, "agent_id": "nova"},
    {"type": "reasoning", "text": "H"},
    {"type": "reasoning", "text": "m."},
    token("Look"),
    token("ing."),
    {"type": "tool_status", "tool_call_id": "toolu_1", "tool_name": "weather", "status": "started"},
    {"type": "tool_status", "tool_call_id": "toolu_1", "tool_name": "weather", "status": "completed"},
    {"type": "step", "index": 0},
    token("Yes, "),
    token("a coat"),
    token("."),
    end(),
)


def texts(changes: Sequence[Change]) -> dict[str, str]:
    """Return what a client has of each text that it joins from pieces."""
    joined: dict[str, str] = {}
    for change in changes:
        match change:
            case Started(item_id, "message" | "reasoning") | Voided(item_id):
                joined[item_id] = ""
            case Delta(item_id, _, text):
                joined[item_id] += text
            case _:
                pass
    return {item_id: text for item_id, text in joined.items() if text}


def done(changes: Sequence[Change]) -> list[object]:
    """Return the items that are done."""
    return [change.item for change in changes if isinstance(change, Done)]


def test_the_items_of_a_turn_are_in_order_with_ids_of_its_run_and_steps() -> None:
    said, thought, looking, called, result, answer = items_of(WHOLE)
    assert isinstance(said, MessageItem)
    assert (said.role, said.text, said.step) == ("user", "Do I need a coat?", -1)
    assert isinstance(thought, ReasoningItem)
    assert (thought.id, thought.text) == (reasoning_id(RUN, 0), "Hm.")
    assert isinstance(looking, MessageItem)
    assert (looking.id, looking.text) == (message_id(RUN, 0), "Looking.")
    assert isinstance(called, ToolCallItem)
    assert (called.params, called.for_caller) == ({"city": "Oslo"}, False)
    assert isinstance(result, ToolResultItem)
    assert (result.status, result.content) == (
        "completed",
        (text_block("rain"),),
    )
    assert isinstance(answer, MessageItem)
    assert answer.id == message_id(RUN, 1)
    assert len({item.id for item in items_of(WHOLE)}) == 6


def test_calls_of_the_caller_questions_files_and_steering_messages_are_items() -> None:
    other = "run_01ARZ3NDEKTSV4RRFFQ69G5FAW"
    wait = StoredWait("wait_1", "toolu_2", AskUser(question="Which coat?"), "open")
    turn = replace(
        WHOLE,
        steps=1,
        messages=(*WHOLE.messages[:3], StoredMessage("steering", 0, 3, other, None, (text_block("Quick!"),))),
        calls=(call(0), call(0, "deferred", "toolu_2", "ask_user")),
        waits=(wait,),
        files=(StoredFile("file_1", "map.png", "image/png", 3, None, 0),),
        client_tools=frozenset({"weather"}),
    )
    kinds = [type(item) for item in items_of(turn)][3:]
    assert kinds == [ToolCallItem, ToolCallItem, ToolResultItem, QuestionItem, FileItem, MessageItem]
    items = items_of(turn)
    assert [item.for_caller for item in items if isinstance(item, ToolCallItem)] == [True, False]
    assert [item.is_open for item in items if isinstance(item, QuestionItem)] == [True]
    assert (items[-1].id, items[-1].run_id) == (f"msg_{other.removeprefix('run_')}_in", other)


def test_a_message_that_joined_a_turn_has_what_comes_after_it_and_a_collected_one_the_whole_turn() -> None:
    other = "run_01ARZ3NDEKTSV4RRFFQ69G5FAW"
    steering = StoredMessage("steering", 0, 3, other, None, (text_block("Quick!"),))
    items = items_of(replace(WHOLE, messages=(*WHOLE.messages[:3], steering, WHOLE.messages[3])))
    assert items_since(items, other) == items[-1:]
    assert items_since(items, "run_01ARZ3NDEKTSV4RRFFQ69G5FAX") == items[1:]


def test_a_call_has_no_item_before_the_response_that_made_it_is_committed() -> None:
    assert items_of(TurnContents("turn_1", RUN, 0, (QUERY,), calls=(call(0, "running"),))) == items_of(
        TurnContents("turn_1", RUN, 0, (QUERY,))
    )


@given(st.lists(st.integers(0, len(EVENTS)), max_size=4))
async def test_a_follower_has_the_items_of_the_ledger_however_events_are_batched(cuts: list[int]) -> None:
    bounds = sorted({0, *cuts, len(EVENTS)})
    feed = ItemFeed(RUN, Ledger(WHOLE).read)
    changes = [change for a, b in pairwise(bounds) for change in await feed.take(EVENTS[a:b])]
    assert done(changes) == list(items_of(WHOLE)[1:])
    assert texts(changes) == {
        reasoning_id(RUN, 0): "Hm.",
        message_id(RUN, 0): "Looking.",
        message_id(RUN, 1): "Yes, a coat.",
    }
    assert changes[-1] == Ended("succeeded")


@given(st.integers(0, len(EVENTS) - 1))
async def test_a_follower_that_comes_back_has_every_item_and_gets_none_of_a_closed_step_again(cut: int) -> None:
    closed = cut >= 8
    committed = WHOLE.messages[:3] if closed else (QUERY,)
    calls = WHOLE.calls if closed else ()
    ledger = Ledger(replace(WHOLE, steps=int(closed), messages=committed, calls=calls))
    first = done(await ItemFeed(RUN, ledger.read).take(EVENTS[:cut]))
    ledger.contents = WHOLE
    feed = ItemFeed(RUN, ledger.read)
    resumed = await feed.resume(EVENTS[cut - 1].cursor if cut else EventCursor())
    had = [event for event in EVENTS[:cut] if event.cursor.key() > resumed.after.key()]
    again = done(await feed.take(had))
    assert [item for item in first if item not in again] == list(resumed.before[1:])
    second = done(await feed.take(EVENTS[cut:]))
    assert [*first, *second] == list(items_of(WHOLE)[1:])


async def test_pieces_of_one_flush_come_in_one() -> None:
    changes = await ItemFeed(RUN, Ledger().read).take(live(*(token("ab") for _ in range(50))))
    assert changes == [Started(message_id(RUN, 0), "message", 0), Delta(message_id(RUN, 0), "message", "ab" * 50)]


async def test_a_restart_voids_what_was_sent_and_the_item_begins_anew() -> None:
    ledger = Ledger(replace(WHOLE, messages=(QUERY, response(0, "Better.", event="1-4")), calls=(), steps=1))
    changes = await ItemFeed(RUN, ledger.read).take(live(token("Wo"), {"type": "restart"}, token("Better."), end()))
    item_id = message_id(RUN, 0)
    assert changes[:5] == [
        Started(item_id, "message", 0),
        Delta(item_id, "message", "Wo"),
        Voided(item_id, "message"),
        Started(item_id, "message", 0),
        Delta(item_id, "message", "Better."),
    ]
    assert done(changes) == list(items_of(ledger.contents or WHOLE)[1:])


async def test_the_whole_text_of_a_step_adds_only_what_was_not_sent() -> None:
    told = {"type": "assistant_message", "text": "Looking."}
    changes = await ItemFeed(RUN, Ledger().read).take(live(token("Look"), told))
    assert texts(changes) == {message_id(RUN, 0): "Looking."}
    assert not any(isinstance(change, Voided) for change in changes)


async def test_text_of_subagents_is_not_the_runs() -> None:
    assert await ItemFeed(RUN, Ledger().read).take(live({**token("x"), "agent": "helper"})) == []


async def test_a_run_without_live_events_gives_its_items_from_the_ledger_alone() -> None:
    changes = await ItemFeed(RUN, Ledger(WHOLE).read).take(live(end()))
    assert done(changes) == list(items_of(WHOLE)[1:])
    assert texts(changes)[message_id(RUN, 1)] == "Yes, a coat."


async def test_a_call_that_waits_for_its_caller_is_done_before_the_pause_and_its_result_after_it() -> None:
    asked = (QUERY, response(0, "Looking.", event="1-3"))
    tools = frozenset({"weather"})
    ledger = Ledger(TurnContents("turn_1", RUN, 0, asked, (call(0, "deferred"),), client_tools=tools))
    feed = ItemFeed(RUN, ledger.read)
    waiting = {"type": "waiting", "kind": "client_tool", "tool_call_id": "toolu_1"}
    before = await feed.take(live(token("Looking."), {"type": "step", "index": 0}, waiting, end(final=False)))
    assert [type(item) for item in done(before)] == [MessageItem, ToolCallItem]
    assert [item.for_caller for item in done(before) if isinstance(item, ToolCallItem)] == [True]
    assert isinstance(before[-1], Paused)
    ledger.contents = replace(WHOLE, messages=(*asked, *WHOLE.messages[2:]), client_tools=tools)
    after = await feed.take(live({"type": "step", "index": 0}, *(e.event for e in EVENTS[8:]), attempt=2))
    assert [type(item) for item in done(after)] == [ToolResultItem, MessageItem]
