"""I7: a follower that obeys the documented client rules ends with the ledger's text, by ids that strictly grow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from tests.chaos.checker.ledger import Ledger
from tests.chaos.checker.verdict import Violation
from tests.chaos.history import Event, History


@dataclass
class Reading:
    """What a client knows of an answer, by the rules of docs/http-api.md.

    Attributes:
        steps: The text of each committed step, by index.
        open: The text of the step that is being streamed.
        ended: The `stream_end` that is final.
    """

    steps: dict[int, str] = field(default_factory=dict[int, str])
    open: str = ""
    ended: Event | None = None
    _next: int = 0

    def take(self, event: Event) -> None:
        """Apply an event."""
        if event.data.get("agent") is not None:
            return
        match event.type:
            case "token":
                self.open += event.data["text"]
            case "assistant_message":
                self.open = event.data["text"]
            case "stream_start" | "restart":
                self.open = ""
            case "step":
                self._close(event.data["index"])
            case "stream_end" if event.data.get("final"):
                self._close(self._next)
                self.ended = event
            case _:
                pass

    def texts(self) -> list[str]:
        """Return the texts of the steps, in their order."""
        return [text for _, text in sorted(self.steps.items())]

    def _close(self, index: int) -> None:
        if self.open:
            self.steps[index] = self.open
        self.open, self._next = "", max(self._next, index + 1)


def check(history: History, ledger: Ledger) -> Iterator[Violation]:
    """Read every follower's events as a client would, and compare with the ledger."""
    by_follower: dict[str, list[Event]] = {}
    for event in history.events:
        by_follower.setdefault(event.follower, []).append(event)
    for ack in history.acks:
        if ack.code == "cursor_from_the_future":
            yield Violation("I7", f"an id that a follower was given is refused: {ack.code}", (str(ack),))
    runs = {run.id: run for run in ledger.runs}
    responses = _responses(ledger)
    for follower, events in by_follower.items():
        yield from _growth(follower, events)
        reading = Reading()
        for event in events:
            reading.take(event)
        run = runs.get(events[0].run)
        if run is None or run.status == "merged" or reading.ended is None:
            continue
        wanted = responses.get(run.turn_id or "", [])
        if reading.texts() != wanted:
            evidence = (_difference("".join(reading.texts()), "".join(wanted)), *_outline(events))
            evidence += tuple(
                f"{name} {[len(text) for text in texts]} characters"
                for name, texts in (("client", reading.texts()), ("ledger", wanted))
            )
            yield Violation("I7", f"{follower} of {run.id} has another text than the ledger", evidence)
        if reading.ended.data.get("text") != run.result_text:
            evidence = (str(reading.ended)[:400], str(run.result_text)[:400])
            yield Violation("I7", f"{follower}: the end of {run.id} has another text than the ledger", evidence)


def _growth(follower: str, events: list[Event]) -> Iterator[Violation]:
    for before, after in pairwise(events):
        if after.key() <= before.key():
            what = f"{follower}: after {before.id} came {after.id}"
            yield Violation("I7", what, (str(before)[:300], str(after)[:300]))


def _responses(ledger: Ledger) -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {}
    for message in ledger.messages:
        if message.kind == "response" and message.text:
            texts.setdefault(message.turn_id, []).append(message.text)
    return texts


def _difference(client: str, ledger: str) -> str:
    at = next(
        (at for at, (a, b) in enumerate(zip(client, ledger, strict=False)) if a != b), min(len(client), len(ledger))
    )
    return (
        f"they differ from character {at} of {len(client)} (client) and {len(ledger)} (ledger): "
        f"client …{client[max(0, at - 30) : at + 50]!r}, ledger …{ledger[max(0, at - 30) : at + 50]!r}"
    )


def _outline(events: Iterable[Event]) -> Iterator[str]:
    """The events without the tokens between, so that a person can read it."""
    line: list[str] = []
    tokens: list[str] = []
    connection = 0
    for event in events:
        if event.connection != connection:
            connection = event.connection
            line.append(f"| connection {connection}:")
        if event.type == "token":
            tokens.append(event.id)
            continue
        if tokens:
            line.append(f"tokens {tokens[0]}…{tokens[-1]}")
            tokens = []
        line.append(f"{event.id} {event.type}")
    yield " ".join((*line, *(f"token {each}" for each in tokens[-1:])))
