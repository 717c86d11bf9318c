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

from hypothesis import given, settings
from hypothesis import strategies as st

from api.streaming.run_delivery import RunDelivery
from nova_workers.client.run_text import RunText
from nova_workers.contracts import events as live
from nova_workers.contracts.events import Event, EventCursor, event_adapter
from nova_workers.ledger.runs.replay import RecordedCall, RecordedResponse, RecordedRun, RecordedStep
from nova_workers.streams.hub import Batch
from nova_workers.streams.wire import Continuity, LiveEvent, whole_rest
from tests.requirements import proves

_EMPTY = RecordedRun("run_1", "thr_1", "nova", "running", 0, None, None, None, None, None, None, None, None, ())
_SUBAGENT = live.Token(text="not of the answer", agent="helper")


class _Lost(Exception):
    """The client's connection broke."""


@dataclass
class _Run:
    """The ledger, the stream, and the worker that holds the run."""

    chance: random.Random
    ledger: RecordedRun = _EMPTY
    stream: list[LiveEvent] = field(default_factory=list[LiveEvent])
    buffer: list[LiveEvent] = field(default_factory=list[LiveEvent])
    seq: int = 0
    words: int = 0
    turns: int = 0

    @property
    def may_end(self) -> bool:
        return self.turns > 60

    def emit(self, event: Event) -> None:
        self.seq += 1
        cursor = EventCursor(attempt=self.ledger.attempt, seq=self.seq)
        self.buffer.append(LiveEvent(cursor, event.model_dump(mode="json", exclude_none=True)))

    def upcoming(self, ahead: int = 1) -> EventCursor:
        return EventCursor(attempt=self.ledger.attempt, seq=self.seq + ahead)

    def flush(self) -> None:
        """Send the buffer, unless a later attempt writes already."""
        sent, self.buffer = self.buffer, []
        if sent and not (self.stream and self.stream[-1].cursor.attempt > sent[0].cursor.attempt):
            self.stream += sent

    def attempt(self) -> Generator[None]:
        """Execute an attempt. It may be abandoned at each `yield`."""
        self.ledger = replace(self.ledger, attempt=self.ledger.attempt + 1)
        self.seq, self.buffer = 0, []
        self.emit(live.StreamStart(run_id="run_1", thread_id="thr_1", attempt=self.ledger.attempt, agent_id="nova"))
        yield
        response = self.ledger.response
        if response is not None:
            if response.text and not response.is_closed:
                self.emit(live.AssistantMessage(text=response.text, step=response.index))
            yield
            yield from self.run_calls(response.index, response.text, response.calls)
        while True:
            index = len(self.ledger.steps)
            text = yield from self.respond()
            ending = self.chance.choice(["step", "step", "calls", "wait", "requeue", "end" if self.may_end else "step"])
            if ending == "end":
                yield from self.finish(index, text)
                return
            if ending == "requeue":
                self.emit(live.StreamEnd(run_id="run_1", final=False, status="queued"))
                return
            if ending == "step":
                yield from self.close(index, text, ())
                continue
            calls = tuple(RecordedCall(f"call_{index}_{n}", "look", "pending") for n in range(2))
            if text:
                self.emit(live.AssistantMessage(text=text))
            self.ledger = replace(
                self.ledger, response=RecordedResponse(index, self.upcoming(), text, calls, is_closed=False)
            )
            yield
            if ending == "wait":
                assert self.ledger.response is not None
                self.ledger = replace(self.ledger, response=replace(self.ledger.response, is_closed=True))
                yield
                self.emit(live.Step(index=index))
                self.emit(live.Waiting(kind="user"))
                self.emit(live.StreamEnd(run_id="run_1", final=False, status="waiting"))
                return
            yield from self.run_calls(index, text, calls)

    def respond(self) -> Generator[None, None, str]:
        """Stream a response, which may break off and begin again."""
        while True:
            text = ""
            self.emit(live.Thinking())
            for _ in range(self.chance.randrange(4)):
                self.words += 1
                text += f"{self.words} "
                self.emit(live.Token(text=f"{self.words} "))
                if self.chance.random() < 0.2:
                    self.emit(_SUBAGENT)
                yield
            if self.chance.random() < 0.8:
                return text
            self.emit(live.Restart())
            yield

    def run_calls(self, index: int, text: str, calls: Sequence[RecordedCall]) -> Generator[None]:
        for call in calls:
            self.emit(live.ToolStatus(tool_call_id=call.call_id, tool_name=call.tool_name, status="started"))
            yield
            self.emit(live.ToolStatus(tool_call_id=call.call_id, tool_name=call.tool_name, status="completed"))
            yield
        yield from self.close(index, text, tuple(replace(call, status="completed") for call in calls))

    def close(self, index: int, text: str, calls: tuple[RecordedCall, ...]) -> Generator[None]:
        step = RecordedStep(index, self.upcoming(2), text, calls, ())
        self.ledger = replace(self.ledger, steps=(*self.ledger.steps, step), response=None)
        yield
        self.emit(live.Usage(input_tokens=1, output_tokens=1))
        yield
        self.emit(live.Step(index=index))
        yield

    def finish(self, index: int, text: str) -> Generator[None]:
        final = self.upcoming()
        step = RecordedStep(index, final, text, (), ())
        self.ledger = replace(self.ledger, steps=(*self.ledger.steps, step), final_event=final, text=text)
        yield
        self.emit(live.StreamEnd(run_id="run_1", final=True, status="succeeded", text=text))


@dataclass
class _Client:
    """A client that obeys the rules: it keeps the last id, and takes each event."""

    run: _Run
    text: RunText = field(default_factory=RunText)
    last: EventCursor = field(default_factory=EventCursor)
    idle_every_s: float = 15.0
    delivery: RunDelivery | None = None
    position: Continuity = field(default_factory=lambda: Continuity(EventCursor()))
    loses: float = 0.05
    most: int | None = None
    """Events of one connection, at the most."""
    ended: bool = False
    taken: int = 0

    async def on_events(self, events: Sequence[LiveEvent]) -> None:
        for cursor, raw in events:
            if self.run.chance.random() < self.loses or self.most == self.taken:
                raise _Lost
            self.taken += 1
            assert cursor.key() > self.last.key(), f"{cursor} after {self.last}"
            event = event_adapter.validate_python(raw)
            self.last = EventCursor.parse(str(cursor))
            self.text.feed(event)
            self.ended = event.type == "stream_end" and event.final

    async def on_idle(self) -> None: ...
    async def until_gone(self) -> None: ...

    async def recorded(self) -> RecordedRun:
        return self.run.ledger

    async def read(self, *, is_late: bool = False) -> None:
        """Receive what there is; connect first if necessary. `is_late`: the run ended a while ago."""
        try:
            if self.delivery is None:
                self.taken = 0
                self.position, self.delivery = Continuity(self.last), RunDelivery(self.recorded, self, self.last)
                if is_late and self.run.chance.random() < 0.5:
                    rest = whole_rest(self.run.stream, self.last, self.run.ledger.final_event)
                    await (self.delivery.finish_from_ledger() if rest is None else self.on_events(rest))
                    return
            for batch in self.batches():
                if await self.delivery.take(batch):
                    return
            if is_late:
                await self.delivery.finish_from_ledger()
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

    run: _Run
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
    run = _Run(chance)
    clients = [_Client(run, loses=0.0), _Client(run), _Client(run, most=1), _Client(run, most=3)]
    faults = _Faults(run, chance.choice([0.0, 0.02, 0.1]), chance.choice([0.0, 0.02, 0.1]))
    attempt = run.attempt()
    while run.ledger.final_event is None:
        run.turns += 1
        if next(attempt, "over") == "over":
            run.flush()
            attempt = run.attempt()
        attempt = faults.strike(attempt)
        for client in clients:
            if chance.random() < 0.2:
                await client.read()
    if next(attempt, "over") == "over" and chance.random() < 0.7:
        run.flush()
    expected = {step.index: step.text for step in run.ledger.steps if step.text}
    for client in clients:
        async with asyncio.timeout(5):
            while not client.ended:
                await client.read(is_late=True)
        assert client.last == run.ledger.final_event
        assert client.text.closed == expected


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
@proves("events.exact")
def test_a_client_ends_with_exactly_the_text_of_the_ledger_whatever_is_lost(seed: int):
    asyncio.run(_play(seed))
