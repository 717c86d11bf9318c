"""A client that obeys the rules ends with the ledger's text, whatever is lost between the worker and the client.

A model of one run: workers that emit, commit and crash at any point, a stream that loses any part of itself, and a
client that loses its connection at any event. The continuity of streams, the delivery, the replay and the client's text
are the real ones.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from api.streaming.following import RunDelivery
from nova_workers.client.run_text import RunText
from nova_workers.contracts import events as live
from nova_workers.contracts.events import AFTER_LIVE, EventCursor, event_adapter
from nova_workers.contracts.waits import AskUser
from nova_workers.domain.runs.sql.replay import RecordedCall, RecordedResponse, RecordedRun, RecordedWait
from nova_workers.domain.streams.rules.wire import Batch, Continuity, LiveEvent
from tests.requirements import proves
from tests.unit.streams.modelled_run import EMPTY, ModelRun

_MOST_CONNECTIONS = 2_000


class _Lost(Exception):
    """The client's connection broke."""


@dataclass
class _Client:
    """A client that obeys the rules: it keeps the last id, and takes each event."""

    run: ModelRun
    text: RunText = field(default_factory=RunText)
    last: EventCursor = field(default_factory=EventCursor)
    idle_every_s: float = 15.0
    delivery: RunDelivery | None = None
    position: Continuity = field(default_factory=lambda: Continuity(EventCursor()))
    loses: float = 0.05
    most: int | None = None
    """Events of one connection, at the most."""
    ended: bool = False
    has_error: bool = False
    taken: int = 0
    asked: list[str] = field(default_factory=list[str])
    """Questions of this connection."""
    known: set[str] = field(default_factory=set[str])
    """Questions of all connections."""

    async def on_events(self, events: Sequence[LiveEvent]) -> None:
        for cursor, raw, _ in events:
            if self.run.chance.random() < self.loses or self.most == self.taken:
                raise _Lost
            self.taken += 1
            assert cursor.key() > self.last.key(), f"{cursor} after {self.last}"
            event = event_adapter.validate_python(raw)
            self.last = EventCursor.parse(str(cursor))
            self.text.feed(event)
            # Of a step that waits, only its end comes after the waits.
            assert event.type != "step" or cursor.seq != AFTER_LIVE or self.run.ledger.final_event is not None
            self.has_error |= event.type == "stream_error"
            if event.type == "waiting":
                assert event.question not in self.asked
                self.asked.append(str(event.question))
                self.known.add(str(event.question))
            self.ended = event.type == "stream_end" and event.final

    async def on_idle(self) -> None: ...
    async def until_gone(self) -> None: ...

    async def recorded(self) -> RecordedRun:
        return self.run.ledger

    async def read(self, *, is_late: bool = False) -> None:
        """Receive what there is; connect first if necessary. `is_late`: the run ended a while ago."""
        try:
            if self.delivery is None:
                self.taken, self.asked = 0, []
                self.position, self.delivery = Continuity(self.last), RunDelivery(self.recorded, self, self.last)
            for batch in self.batches():
                if await self.delivery.take(batch):
                    return
            if is_late:
                await self.delivery.finish_from_ledger()
        except _Lost:
            self.delivery = None

    async def read_to_end(self) -> None:
        """Connect until the end of a run that ended a while ago is received."""
        for _ in range(_MOST_CONNECTIONS):
            if self.ended:
                return
            await self.read(is_late=True)
        raise AssertionError(f"no end after {self.last}")

    async def look_for(self, question: str) -> None:
        """Connect until a question of a run that waits is received."""
        for _ in range(_MOST_CONNECTIONS):
            if question in self.known:
                return
            await self.look()
        raise AssertionError(f"no {question!r} after {self.last}")

    async def look(self) -> None:
        """Receive what there is of a run that waits, once it has waited for a while."""
        attempt = self.run.ledger.attempt
        await self.read()
        if self.delivery is None or self.delivery.has_sent_waits(attempt) or self.position.has_ended(attempt):
            return
        try:
            await self.delivery.take(Batch([], has_gap=True))
        except _Lost:
            self.delivery = None

    def batches(self) -> list[Batch]:
        """Return what the stream has for the client, in pieces of any size, as a feed does."""
        batches: list[Batch] = []
        for event in [*self.run.stream]:
            if event.cursor.key() <= self.position.cursor.key():
                self.position.recall(event)
                continue
            is_next = self.position.is_next(event.cursor)
            if not is_next or not batches or self.run.chance.random() < 0.3:
                batches.append(Batch([], has_gap=not is_next))
            batches[-1].events.append(event)
            self.position.advance(event)
        return batches


@dataclass
class _Faults:
    """What goes wrong in one example, and how often."""

    run: ModelRun
    crashes: float
    losses: float

    def strike(self, attempt: Generator[None]) -> Generator[None]:
        """Perhaps crash the worker, or lose part of the stream; return the attempt that goes on."""
        run, chance = self.run, self.run.chance
        if chance.random() < self.crashes:
            left = run.buffer
            attempt = run.attempt()
            next(attempt)
            if chance.random() < 0.3:
                # The former worker was frozen, and sends what it had before its successor does.
                run.stream += left
        if chance.random() < 0.4:
            run.flush()
        if chance.random() < self.losses:
            # Wiped, or trimmed.
            del run.stream[: chance.choice([len(run.stream), chance.randrange(len(run.stream) + 1)])]
        if chance.random() < self.losses:
            del run.buffer[: chance.randrange(len(run.buffer) + 1)]
        return attempt


async def _play(seed: int) -> None:
    chance = random.Random(seed)
    run = ModelRun(chance)
    clients = [_Client(run, loses=0.0), _Client(run), _Client(run, most=1), _Client(run, most=3)]
    faults = _Faults(run, chance.choice([0.0, 0.02, 0.1]), chance.choice([0.0, 0.02, 0.1]))
    attempt = run.attempt()
    while run.ledger.final_event is None:
        run.turns += 1
        if next(attempt, "over") == "over":
            run.flush()
            attempt = run.attempt()
        if run.ledger.final_event is None:
            attempt = faults.strike(attempt)
        waiting = run.ledger.waits if run.ledger.status == "waiting" and chance.random() < 0.5 else ()
        for client, wait in product(clients, waiting):
            assert isinstance(wait.request, AskUser)
            await client.look_for(wait.request.question)
        for client in clients:
            if chance.random() < 0.2:
                await client.read()
    if next(attempt, "over") == "over" and chance.random() < 0.7:
        run.flush()
    expected = {step.index: step.text for step in run.ledger.steps if step.text}
    for client in clients:
        await client.read_to_end()
        assert client.last == run.ledger.final_event
        assert client.has_error == (run.ledger.error is not None)
        assert client.text.closed == expected


@given(st.integers(0, 2**32))
@proves("events.exact")
def test_a_client_ends_with_exactly_the_text_of_the_ledger_whatever_is_lost(seed: int):
    asyncio.run(_play(seed))


@proves("events.exact")
async def test_a_question_comes_from_the_ledger_if_the_stream_has_only_the_end_of_its_attempt():
    call = RecordedCall("call_0", "ask", "pending")
    response = RecordedResponse(0, EventCursor(attempt=1, seq=3), "I must ask.", (call,), is_closed=True)
    wait = RecordedWait(call.call_id, AskUser(question="Which?"), is_open=True)
    run = ModelRun(random.Random(0), replace(EMPTY, attempt=1, status="waiting", response=response, waits=(wait,)))
    client = _Client(run, loses=0.0)
    end = live.StreamEnd(run_id="run_1", final=False, status="waiting").model_dump(mode="json", exclude_none=True)
    batch = Batch([LiveEvent(EventCursor(attempt=1, seq=6), end)], has_gap=True)
    assert not await RunDelivery(client.recorded, client, EventCursor()).take(batch)
    assert client.asked == ["Which?"]
    assert client.text.texts == ("I must ask.",)
