"""The service of doors on real servers: a follower and a reader of the ledger have the same items."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from fastapi import Request
from redis.asyncio import Redis
from starlette.types import Message

from api.auth import Caller
from api.doors.feed import Change, Delta, Done, Ended, Paused, Started, Voided
from api.doors.items import FileItem, Item, MessageItem, QuestionItem, ToolCallItem, ToolResultItem, input_id
from api.doors.service import Door
from nova_workers.base.errors import Conflict, InvalidInput, NotFound
from nova_workers.base.keys import run_events
from nova_workers.contracts import events as live
from nova_workers.contracts.content import Message as Said
from nova_workers.contracts.content import text_block
from nova_workers.contracts.deliveries import Sender
from nova_workers.contracts.engine import StepRecord
from nova_workers.contracts.events import EventCursor
from nova_workers.contracts.http.wire import StatelessRunCreate
from nova_workers.contracts.steps import ToolCall
from nova_workers.contracts.waits import AskUser, RunAnswer
from nova_workers.domain.files.sql import add_file
from nova_workers.domain.runs.sql.journal import commit_calls
from nova_workers.domain.runs.sql.reads import RunState
from nova_workers.domain.waits.sql.suspend import NewWait
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import ManualWorker
from tests.requirements import proves


class Notes:
    """Takes the changes of a run."""

    def __init__(self) -> None:
        self.is_over = False
        self.through_pauses = False
        self.held = EventCursor()
        self.before: list[Item] = []
        self.changes: list[Change] = []
        self.writes: list[tuple[Sequence[Change], EventCursor]] = []

    async def begin(self, run: RunState, before: Sequence[Item]) -> bytes:
        """Note what the follower has."""
        self.before = list(before)
        return b""

    async def write(self, changes: Sequence[Change], cursor: EventCursor) -> bytes:
        """Note changes that the follower lacks; at a pause for a person the stream is over."""
        had = [change for change in changes if change.event.key() <= self.held.key()]
        self.before += [change.item for change in had if isinstance(change, Done)]
        changes = changes[len(had) :]
        self.changes += changes
        self.writes.append((changes, cursor))
        ends = Ended if self.through_pauses else Paused | Ended
        self.is_over = any(isinstance(change, ends) for change in changes)
        return b""

    @property
    def items(self) -> list[Item]:
        """The items that are done."""
        return [change.item for change in self.changes if isinstance(change, Done)]


def door_of(api: Api) -> Door:
    """Return the service for a request of the tenant."""
    key_id = api.tenant.key_id
    caller = Caller(key_id, "test", api.tenant.id, frozenset({"runs"}), None, principal=key_id)
    return Door(api.state, caller, Request({"type": "http", "path": "/test", "headers": []}))


async def followed(door: Door, run_id: str, after: EventCursor | None = None, *, through_pauses: bool = False) -> Notes:
    """Follow a run until it pauses or ends."""
    notes = Notes()
    notes.through_pauses = through_pauses
    notes.held = after or EventCursor()
    stream = await door.follow(run_id, notes, after=after)

    async def receive() -> Message:
        return await asyncio.Future[Message]()

    async def send(message: Any) -> None:
        """Drop it: the notes have the changes."""

    async with asyncio.timeout(60):
        await stream({"type": "http"}, receive, send)
    return notes


async def test_a_follower_and_a_reader_have_the_same_items(own_api: Api, own_worker: ManualWorker) -> None:
    door = door_of(own_api)
    begun = await door.submit(StatelessRunCreate(message="hello", agent_id="nova"))
    turn = await own_worker.claim(begun.thread_id)
    await turn.emit(live.Token(text="Looking."))
    sender = Sender(tenant_id=own_api.tenant.id, agent_id="nova", thread_id=begun.thread_id, run_id=begun.run_id)
    async with own_worker.database.connection() as connection:
        await add_file(connection, sender, name="a.txt", media_type="text/plain", caption=None, content=b"a")
    call = ToolCall("toolu_1", "look", {"at": 1}, 0, 0, "completed", ({"type": "text", "text": "done"},))
    closed = await turn.commit("Looking.", call)
    await turn.suspend("Which?", NewWait("toolu_2", AskUser(question="Which one?")))

    waiting = await followed(door, begun.run_id)
    assert isinstance(waiting.changes[-1], Paused)
    ledger = await door.items(begun.run_id)
    assert waiting.items == list(ledger[1:])
    assert [type(item) for item in ledger] == [
        MessageItem,
        MessageItem,
        ToolCallItem,
        ToolResultItem,
        FileItem,
        MessageItem,
        ToolCallItem,
        QuestionItem,
    ]
    resumed = await followed(door, begun.run_id, after=closed)
    assert resumed.before == list(ledger[:5])
    assert resumed.items == list(ledger[5:])

    await door.answer(begun.run_id, RunAnswer(text="That one"))
    turn = await own_worker.claim(begun.thread_id)
    turn.step, turn.seq = 2, 5
    await door.cancel(begun.run_id)
    await turn.finish("Stopped.", "canceled")
    ended = await followed(door, begun.run_id)
    final = await door.items(begun.run_id)
    assert {item.id for item in ended.items} == {item.id for item in final[1:]}
    assert [item.is_open for item in final if isinstance(item, QuestionItem)] == [False]


async def test_a_conversation_comes_in_pages_of_turns(own_api: Api, own_worker: ManualWorker) -> None:
    door = door_of(own_api)
    begun = await door.submit(StatelessRunCreate(message="0", agent_id="nova"))
    await own_worker.play(begun.thread_id, "answer 0")
    for number in (1, 2):
        await door.submit(StatelessRunCreate(message=str(number), thread_id=begun.thread_id))
        await own_worker.play(begun.thread_id, f"answer {number}")
    newest = await door.items_of_thread(begun.thread_id, turns=2)
    assert [item.text for item in newest.items if isinstance(item, MessageItem)] == ["1", "answer 1", "2", "answer 2"]
    oldest = await door.items_of_thread(begun.thread_id, at=newest.goes_on_at, turns=2)
    assert oldest.items == await door.items(begun.run_id)
    assert oldest.goes_on_at is None
    first = await door.items_of_thread(begun.thread_id, turns=2, oldest_first=True)
    assert [item.text for item in first.items if isinstance(item, MessageItem)] == ["0", "answer 0", "1", "answer 1"]
    last = await door.items_of_thread(begun.thread_id, at=first.goes_on_at, turns=2, oldest_first=True)
    assert last.items == newest.items[2:]
    assert last.goes_on_at is None


async def test_the_items_of_a_run_that_has_not_begun_are_its_message(own_api: Api) -> None:
    door = door_of(own_api)
    begun = await door.submit(StatelessRunCreate(message="hello", agent_id="nova"))
    (item,) = await door.items(begun.run_id)
    assert isinstance(item, MessageItem)
    assert (item.role, item.text) == ("user", "hello")


@proves("doors.continue")
async def test_a_message_after_a_run_follows_in_its_thread_or_in_a_fork_and_a_refusal_leaves_none(
    own_api: Api, own_worker: ManualWorker
) -> None:
    door = door_of(own_api)
    first = await door.submit(StatelessRunCreate(message="one", agent_id="nova"))
    with pytest.raises(Conflict, match="has no turn to continue from"):
        await door.submit(StatelessRunCreate(message="two"), make_thread=door.after(first.run_id))
    await own_worker.play(first.thread_id)

    body = StatelessRunCreate(message="two")
    key = door.key("a request", body)
    sent = await asyncio.gather(
        *(door.submit(body, key=key, make_thread=door.after(first.run_id)) for _ in range(3)),
        *(door.submit(body, make_thread=door.after(first.run_id)) for _ in range(3)),
    )
    assert len({begun.run_id for begun in sent[:3]}) == 1
    # One of the four follows in the thread itself, and each other has a fork of its own.
    threads = {begun.run_id: begun.thread_id for begun in sent}
    assert len(threads) == len(set(threads.values())) == 4
    assert first.thread_id in threads.values()
    assert await count_of(own_api, "threads") == 4

    refused = StatelessRunCreate.model_validate({"message": "x", "output_schema": {"type": "no such type"}})
    for _ in range(2):
        with pytest.raises(InvalidInput):
            await door.submit(refused, make_thread=door.after(first.run_id))
    assert await count_of(own_api, "threads") == 4
    with pytest.raises(NotFound):
        await door.submit(body, make_thread=door.after("run_01ARZ3NDEKTSV4RRFFQ69G5FAV"))


async def count_of(api: Api, table: str) -> int:
    """Return how many rows the tenant has in a table."""
    async with api.state.services.database.connection() as connection:
        return await connection.fetchval(f"SELECT count(*) FROM {table} WHERE tenant_id = :id", id=api.tenant.id)


class Kept:
    """What a client of a door has of a run: it applies changes, and each item is done once."""

    def __init__(self) -> None:
        self.open: dict[str, str] = {}
        self.done: dict[tuple[str, bool], Item] = {}
        self.is_over = False

    def take(self, changes: Sequence[Change]) -> None:
        """Apply changes."""
        for change in changes:
            match change:
                case Started(item_id):
                    assert (item_id, False) not in self.done, "an item began again after it was done"
                    self.open[item_id] = ""
                case Delta(item_id, _, text):
                    self.open[item_id] += text
                case Voided(item_id):
                    self.open.pop(item_id, None)
                case Done(item):
                    key = (item.id, isinstance(item, QuestionItem) and not item.is_open)
                    assert key not in self.done, "an item was done twice"
                    joined = self.open.pop(item.id, None)
                    if isinstance(item, MessageItem):
                        # One who resumes after the live events are gone is given the whole at its end.
                        assert joined is not None
                        assert item.text.startswith(joined), "a client joined text that is not the item's"
                    self.done[key] = item
                case Ended():
                    self.is_over = True
                case _:
                    pass


@proves("doors.resume")
async def test_a_follower_that_is_cut_off_anywhere_and_resumes_has_each_item_once(
    own_api: Api, own_worker: ManualWorker, redis: Redis
) -> None:
    door = door_of(own_api)
    begun = await door.submit(StatelessRunCreate(message="hello", agent_id="nova"))
    following = asyncio.create_task(followed(door, begun.run_id, through_pauses=True))
    turn = await own_worker.claim(begun.thread_id)
    for text in ("Hm", "."):
        await turn.emit(live.Reasoning(text=text))
    for text in ("Look", "ing."):
        await turn.emit(live.Token(text=text))
    await turn.commit("Looking.", ToolCall("toolu_1", "look", {"at": 1}, 0, 0, "completed", (text_block("done"),)))
    await turn.emit(live.Token(text="What no one commits"))
    # Its worker stops, and another one goes on from the journal.
    await turn.requeue()
    again = await own_worker.claim(begun.thread_id)
    again.step, again.seq = turn.step, turn.seq
    for text in ("Fou", "nd", " it."):
        await again.emit(live.Token(text=text))
    await again.finish("Found it.")
    whole = await following
    assert len(whole.writes) > 6
    await check_cuts(door, begun.run_id, whole)
    await redis.delete(run_events(begun.run_id))
    await check_cuts(door, begun.run_id, whole)


async def check_cuts(door: Door, run_id: str, whole: Notes) -> None:
    """Cut a follower off after each of its writes, let it resume, and compare what it has with the ledger."""
    ledger = sorted((item.id for item in await door.items(run_id)), key=str)
    for cut in range(len(whole.writes)):
        kept = Kept()
        for changes, _ in whole.writes[:cut]:
            kept.take(changes)
        after = whole.writes[cut - 1][1] if cut else None
        rest = await followed(door, run_id, after, through_pauses=True)
        for changes, _ in rest.writes:
            kept.take(changes)
        has = sorted([input_id(run_id), *(item.id for item in kept.done.values())], key=str)
        assert (has, kept.open, kept.is_over) == (ledger, {}, True), cut


@proves("doors.resume")
async def test_a_response_with_calls_is_given_once_also_if_its_worker_is_lost_before_it_emits_more(
    own_api: Api, own_worker: ManualWorker, redis: Redis
) -> None:
    door = door_of(own_api)
    begun = await door.submit(StatelessRunCreate(message="hello", agent_id="nova"))
    following = asyncio.create_task(followed(door, begun.run_id, through_pauses=True))
    turn = await own_worker.claim(begun.thread_id)
    await turn.emit(live.Token(text="Loo"))
    call = ToolCall("toolu_1", "look", {"at": 1}, 0, 0)
    content = (text_block("Looking."), {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": 1}})
    said = StepRecord(0, (Said("assistant", content),), tool_calls=(call,), model="scripted")
    async with own_worker.database.connection() as connection:
        event_id = str(turn.events.upcoming())
        await commit_calls(connection, begun.run_id, turn.claim.fence, said, seq=1, event_id=event_id)
    await turn.requeue()
    again = await own_worker.claim(begun.thread_id)
    again.step, again.seq = 0, 1
    await again.emit(live.ToolStatus(tool_call_id="toolu_1", tool_name="look", status="started", summary=""))
    await again.emit(live.ToolStatus(tool_call_id="toolu_1", tool_name="look", status="completed", summary=""))
    await again.commit("Looking.", replace(call, status="completed", result=(text_block("done"),)))
    await again.emit(live.Token(text="Found."))
    await again.finish("Found.")
    await check_cuts(door, begun.run_id, await following)
    await redis.delete(run_events(begun.run_id))
    await check_cuts(door, begun.run_id, await followed(door, begun.run_id, through_pauses=True))
