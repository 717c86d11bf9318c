"""The record of a chaos run: every request, answer, event, tool call, webhook, fault and exit, one JSON object a line.

Several processes append to files of their own; `History.read` merges them by time. The checker knows nothing of a run
but this and the ledger's tables, so this module imports nothing of the fleet.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, cast

_T = TypeVar("_T")

PLAIN_ANSWER = "A plain answer."
"""What the model answers to a message without a plan."""


def text_of_step(name: str, step: int, words: int) -> list[str]:
    """Return the words that the model answers in a step of a plan."""
    return [f"{name}.{step}.{at} " for at in range(words)]


def text_of_plan(name: str, words: Iterable[int]) -> str:
    """Return the whole answer to a plan, given the number of words of each step."""
    return "".join(word for step, count in enumerate(words) for word in text_of_step(name, step, count))


class Recorder:
    """Appends entries to a file. Use it as a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("a", encoding="utf-8", buffering=1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def write(self, what: str, **fields: object) -> None:
        """Append an entry with the present time."""
        self._file.write(json.dumps({"at": time.time(), "what": what, **fields}) + "\n")


@dataclass(frozen=True)
class Submission:
    """A message that a client sent, perhaps several times with the same key.

    kind: ``plan``, or ``steer`` for a message that the model answers by its name.
    name: What the model calls it in its answer.
    words: Of each step of a plan.
    """

    at: float
    key: str
    client: str
    kind: str
    name: str
    on_busy: str
    thread: str | None = None
    work_s: float = 0.0
    words: list[int] = field(default_factory=list[int])


@dataclass(frozen=True)
class Ack:
    """An answer to a request: the run as the API gave it, or a status without a run, or the error of the connection."""

    at: float
    path: str
    key: str | None = None
    status: int | None = None
    run: str | None = None
    thread: str | None = None
    run_status: str | None = None
    code: str | None = None
    error: str | None = None


@dataclass(frozen=True)
class Event:
    """A server-sent event as a follower got it. `connection` counts the follower's connections."""

    at: float
    follower: str
    run: str
    connection: int
    id: str
    type: str
    data: dict[str, Any]

    def key(self) -> tuple[int, int, int]:
        """Return what orders the events of a run: the parts of the id; a third one that is missing is 0."""
        attempt, seq, *number = (int(part) for part in self.id.split("-"))
        return attempt, seq, number[0] if number else 0


@dataclass(frozen=True)
class DoorReading:
    """What a client of a door has in the end of a message that it sent.

    status: As its protocol says it; ``missing`` without an answer.
    twice: What it was given twice, or not in order.
    """

    at: float
    door: str
    key: str
    run: str
    status: str
    text: str
    twice: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class ToolRun:
    """An execution of a tool that is not idempotent, recorded by the tool's server as it begins."""

    at: float
    key: str


@dataclass(frozen=True)
class Guest:
    """Something of the second tenant that was accepted.

    kind: ``tree``, ``order``, ``approval``, ``poison``, or ``visit``: a message that was sent in the console.
    id: Of the tree, the order, the run; of the thread for a visit.
    text: What its result must be.
    key: Of a call that needs a decision; begins with ``yes`` or ``no``.
    """

    at: float
    kind: str
    id: str
    text: str
    key: str = ""


@dataclass(frozen=True)
class Once:
    """A request that was sent once, without a key, and was answered.

    action: What it asked for.
    mark: Names its run.
    is_done: Whether the ledger had it once every fault was removed.
    """

    at: float
    action: str
    mark: str
    status: int
    is_done: bool
    code: str | None = None
    look_up: str | None = None


@dataclass(frozen=True)
class Hook:
    """A request that the receiver of webhooks got."""

    at: float
    delivery: str
    run: str | None
    type: str


@dataclass(frozen=True)
class Fault:
    """A fault, written down when it was removed. It began at `began_at` and ended at `at`.

    failed: It could not be made, or not be removed, as it should; the detail says why.
    breaks: False for a mere load: bounds hold meanwhile.
    touches: What it acted on, such as ``outside`` for models and tools.
    """

    at: float
    number: int
    name: str
    began_at: float
    detail: str = ""
    failed: bool = False
    breaks: bool = True
    touches: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class Exit:
    """A process that ended. `asked`: by a fault."""

    at: float
    process: str
    code: int
    asked: bool


@dataclass(frozen=True)
class History:
    """The whole record.

    Attributes:
        bound_s: How long anything may wait once no fault is active.
        seed: Of the run.
        healed_at: When the last fault was removed.
        settled_at: When the runner stopped waiting.
    """

    bound_s: float = 45.0
    seed: int = 0
    began_at: float = 0.0
    healed_at: float = 0.0
    settled_at: float = 0.0
    submissions: list[Submission] = field(default_factory=list[Submission])
    acks: list[Ack] = field(default_factory=list[Ack])
    events: list[Event] = field(default_factory=list[Event])
    doors: list[DoorReading] = field(default_factory=list[DoorReading])
    tools: list[ToolRun] = field(default_factory=list[ToolRun])
    guests: list[Guest] = field(default_factory=list[Guest])
    guest_tools: list[ToolRun] = field(default_factory=list[ToolRun])
    once: list[Once] = field(default_factory=list[Once])
    hooks: list[Hook] = field(default_factory=list[Hook])
    faults: list[Fault] = field(default_factory=list[Fault])
    exits: list[Exit] = field(default_factory=list[Exit])

    @classmethod
    def read(cls, *paths: Path) -> Self:
        """Read files of one run. A last line that a killed process left unfinished is left out."""
        entries = sorted((entry for path in paths for entry in _lines(path)), key=lambda entry: entry["at"])
        settings = next((entry for entry in entries if entry["what"] == "settings"), {})
        marks = {entry["what"]: entry["at"] for entry in entries}
        return cls(
            bound_s=settings.get("bound_s", 45.0),
            seed=settings.get("seed", 0),
            began_at=entries[0]["at"] if entries else 0.0,
            healed_at=marks.get("healed", 0.0),
            settled_at=marks.get("settled", 0.0),
            submissions=list(_of(entries, "submission", Submission)),
            acks=list(_of(entries, "ack", Ack)),
            events=list(_of(entries, "event", Event)),
            doors=list(_of(entries, "door", DoorReading)),
            tools=list(_of(entries, "tool", ToolRun)),
            guests=list(_of(entries, "guest", Guest)),
            guest_tools=list(_of(entries, "guest_tool", ToolRun)),
            once=list(_of(entries, "once", Once)),
            hooks=list(_of(entries, "hook", Hook)),
            faults=list(_of(entries, "fault", Fault)),
            exits=list(_of(entries, "exit", Exit)),
        )

    def is_outside_at_fault(self, since: float) -> bool:
        """Return whether models and tools were at fault after a time, or less than the bound before it."""
        return any("outside" in fault.touches and fault.at + self.bound_s > since for fault in self.faults)

    def first_submissions(self) -> dict[str, Submission]:
        """Return the first attempt to send each message, by its key."""
        first: dict[str, Submission] = {}
        for submission in self.submissions:
            first.setdefault(submission.key, submission)
        return first

    def runs_by_key(self) -> dict[str, str]:
        """Return the run with which each key was first answered."""
        runs: dict[str, str] = {}
        for ack in self.acks:
            if ack.key is not None and ack.run is not None:
                runs.setdefault(ack.key, ack.run)
        return runs


def _lines(path: Path) -> Iterable[dict[str, Any]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            yield cast(dict[str, Any], json.loads(line))
        except ValueError:
            continue


def _of(entries: Iterable[dict[str, Any]], what: str, kind: type[_T]) -> Iterable[_T]:
    for entry in entries:
        if entry["what"] == what:
            yield kind(**{name: value for name, value in entry.items() if name != "what"})
