"""A model of one run: its ledger, its stream, and workers that emit, commit and crash at any point."""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace

from nova_workers.contracts import events as live
from nova_workers.contracts.events import Event, EventCursor
from nova_workers.contracts.waits import AskUser
from nova_workers.domain.runs.sql.replay import RecordedCall, RecordedResponse, RecordedRun, RecordedStep, RecordedWait
from nova_workers.domain.streams.rules.wire import LiveEvent

EMPTY = RecordedRun("run_1", "thr_1", "nova", "running", 0, None, None, None, None, None, None, None, None, ())
"""Of a run that no worker has claimed."""
_SUBAGENT = live.Token(text="not of the answer", agent="helper")


@dataclass
class ModelRun:
    """The ledger, the stream, and the worker that holds the run."""

    chance: random.Random
    ledger: RecordedRun = EMPTY
    stream: list[LiveEvent] = field(default_factory=list[LiveEvent])
    buffer: list[LiveEvent] = field(default_factory=list[LiveEvent])
    seq: int = 0
    words: int = 0
    waits: int = 0
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
        self.ledger = replace(self.ledger, attempt=self.ledger.attempt + 1, status="running", waits=())
        self.seq, self.buffer = 0, []
        self.emit(live.StreamStart(run_id="run_1", thread_id="thr_1", attempt=self.ledger.attempt, agent_id="nova"))
        yield
        response = self.ledger.response
        if response is not None:
            yield from self.resume(response)
        while self.ledger.final_event is None:
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
            calls = tuple(RecordedCall(f"call_{index}_{n}", "look", "pending") for n in range(3))
            if text:
                self.emit(live.AssistantMessage(text=text))
            self.ledger = replace(
                self.ledger, response=RecordedResponse(index, self.upcoming(), text, calls, is_closed=False)
            )
            yield
            if ending == "wait":
                yield from self.suspend(index, calls)
                return
            yield from self.run_calls(index, text, calls)

    def resume(self, response: RecordedResponse) -> Generator[None]:
        if response.text and not response.is_closed:
            self.emit(live.AssistantMessage(text=response.text, step=response.index))
        if self.may_end and self.chance.random() < 0.5:
            yield from self.fail(response)
            return
        yield
        yield from self.run_calls(response.index, response.text, response.calls)

    def suspend(self, index: int, calls: Sequence[RecordedCall]) -> Generator[None]:
        assert self.ledger.response is not None
        self.waits += 1
        waits = tuple(
            RecordedWait(call.call_id, AskUser(question=f"{self.waits}, {call.call_id}?"), is_open=True)
            for call in calls[: self.chance.randint(1, len(calls))]
        )
        response = replace(self.ledger.response, is_closed=True)
        self.ledger = replace(self.ledger, response=response, status="waiting", waits=waits)
        yield
        self.emit(live.Step(index=index))
        for wait in waits:
            self.emit(live.Waiting.of(wait.tool_call_id, wait.request))
        self.emit(live.StreamEnd(run_id="run_1", final=False, status="waiting"))

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

    def fail(self, response: RecordedResponse) -> Generator[None]:
        """End the run without another call of the model, as one that lost its workers too often."""
        final = self.upcoming(2)
        calls = tuple(replace(call, status="interrupted") for call in response.calls)
        step = RecordedStep(response.index, final, response.text, calls, ())
        self.ledger = replace(
            self.ledger,
            steps=(*self.ledger.steps, step),
            response=None,
            status="failed",
            error=("worker_lost", "lost", True),
            final_event=final,
            text=response.text,
        )
        yield
        self.emit(live.StreamError(error="lost", kind="worker_lost", retryable=True, partial=True))
        self.emit(live.StreamEnd(run_id="run_1", final=True, status="failed", text=response.text))

    def finish(self, index: int, text: str) -> Generator[None]:
        final = self.upcoming()
        step = RecordedStep(index, final, text, (), ())
        self.ledger = replace(self.ledger, steps=(*self.ledger.steps, step), final_event=final, text=text)
        yield
        self.emit(live.StreamEnd(run_id="run_1", final=True, status="succeeded", text=text))
