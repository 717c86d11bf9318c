"""A run as a tree: attempts, model calls, tools, waits and child runs, each with its time as a bar on one axis."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from markupsafe import Markup

from nova_workers.contracts.http.overview.timeline import RunTimeline, TimelineStep, TimelineWait
from nova_workers.contracts.waits import describe_waits

_WIDTH, _HEIGHT = 1000.0, 14.0
_OWN = frozenset({"attempt", "model", "tool"})
"""Kinds of rows on the run's own clock."""
_LEAST_WIDTH = 3.0
"""So that what took no time is visible."""
_BAR = Markup(
    '<svg class="bar" viewBox="0 0 {width} {height}" preserveAspectRatio="none" aria-hidden="true">'
    '<rect class="{tone}" x="{x}" y="2" width="{w}" height="10" rx="2"/></svg>'
)


class Node(NamedTuple):
    """A row of the tree.

    Attributes:
        at: Names it in the page's address; empty for a row without details.
        depth: How deep it is in the tree, from 0.
        kind: A word for what it is.
        tone: Its colour.
        agent_id: Of a child run: whose it is.
        href: The page of a child run.
    """

    at: str
    depth: int
    kind: str
    title: str
    tone: str
    begin: datetime
    end: datetime | None
    agent_id: str | None = None
    href: str | None = None
    svg: Markup = Markup()


def trace(timeline: RunTimeline, now: datetime) -> list[Node]:
    """Return the rows of a run's timeline, each below what it belongs to; what is open lasts until now.

    Attempts, model calls and tools are on the run's own clock, which stands still while the run waits. Queues, waits,
    child runs and effects may take days, so they have a scale of their own: the longest of them.
    """
    nodes = list(_nodes(timeline))
    clock = _RunClock([node for node in nodes if node.kind in _OWN], timeline, now)
    longest_s = max((_took_s(node, now) for node in nodes if node.kind not in _OWN), default=0.0)
    return [node._replace(svg=_draw(node, clock, longest_s, now)) for node in nodes]


class _RunClock:
    """The time that a run spent on its work, from its first claim on."""

    def __init__(self, own: Sequence[Node], timeline: RunTimeline, now: datetime) -> None:
        self._first = min((node.begin for node in own), default=now)
        self._rests = [(wait.created_at, wait.resolved_at or now) for wait in timeline.waits]
        self.total_s = self.at_s(max((node.end or now for node in own), default=now))

    def at_s(self, moment: datetime) -> float:
        """Return the seconds on the clock at a moment. Waits overlap only where one step asked for several."""
        rested_s, until = 0.0, self._first
        for begin, end in sorted(self._rests):
            rested_s += max(0.0, (min(end, moment) - max(begin, until)).total_seconds())
            until = max(until, min(end, moment))
        return max(0.0, (moment - self._first).total_seconds() - rested_s)


def _draw(node: Node, clock: _RunClock, longest_s: float, now: datetime) -> Markup:
    if node.kind in _OWN:
        begin_s, end_s, total_s = clock.at_s(node.begin), clock.at_s(node.end or now), clock.total_s
    else:
        begin_s, end_s, total_s = 0.0, _took_s(node, now), longest_s
    scale = _WIDTH / max(total_s, 0.001)
    x = min(begin_s * scale, _WIDTH - _LEAST_WIDTH)
    width = min(max((end_s - begin_s) * scale, _LEAST_WIDTH), _WIDTH - x)
    return _BAR.format(width=int(_WIDTH), height=int(_HEIGHT), tone=node.tone, x=round(x, 1), w=round(width, 1))


def _took_s(node: Node, now: datetime) -> float:
    return max(0.0, ((node.end or now) - node.begin).total_seconds())


class _Below:
    """What stands below a step: waits by the call that waits, and child runs by the call that began them."""

    def __init__(self, timeline: RunTimeline) -> None:
        self._waits: defaultdict[str, list[TimelineWait]] = defaultdict(list)
        for wait in timeline.waits:
            self._waits[wait.tool_call_id].append(wait)
        self._children = {child.id: child for child in timeline.children}

    def waits(self, call_id: str, depth: int) -> Iterator[Node]:
        """Yield the waits of a call, each once, with the runs that they wait for."""
        for wait in self._waits.pop(call_id, ()):
            title = f"Waits for {describe_waits([wait.kind])}"
            yield Node(f"wait-{wait.id}", depth, "wait", title, "warn", wait.created_at, wait.resolved_at)
            yield from self.child(wait.child_run_id, depth + 1)

    def child(self, run_id: str | None, depth: int) -> Iterator[Node]:
        """Yield a child run, once."""
        child = None if run_id is None else self._children.pop(run_id, None)
        if child is not None:
            href = f"/runs/{child.id}"
            yield Node(
                "", depth, "run", "Run", "run", child.created_at, child.finished_at, agent_id=child.agent_id, href=href
            )

    def rest(self) -> Iterator[Node]:
        """Yield the waits and child runs that belong to no step of the page."""
        for call_id in list(self._waits):
            yield from self.waits(call_id, 1)
        for run_id in list(self._children):
            yield from self.child(run_id, 1)


def _nodes(timeline: RunTimeline) -> Iterator[Node]:
    below = _Below(timeline)
    steps: defaultdict[int | None, list[TimelineStep]] = defaultdict(list)
    for step in timeline.steps:
        steps[step.attempt].append(step)
    yield Node("", 0, "queue", "Queued", "idle", timeline.created_at, timeline.started_at or timeline.finished_at)
    for attempt in timeline.attempts:
        if attempt.started_at is not None:
            ended = f", {str(attempt.ended).replace('_', ' ')}" if attempt.ended else ""
            tone = "bad" if attempt.ended == "lost" else "attempt"
            title = f"Attempt {attempt.attempt}{ended}"
            yield Node(f"attempt-{attempt.attempt}", 0, "attempt", title, tone, attempt.started_at, attempt.ended_at)
        for step in steps.pop(attempt.attempt, ()):
            yield from _of_step(step, timeline, below)
    for others in steps.values():
        for step in others:
            yield from _of_step(step, timeline, below)
    if timeline.next_cursor is None:
        yield from below.rest()
    for effect in timeline.effects:
        tone = "bad" if effect.status == "failed" else "effect"
        yield Node("", 0, "effect", effect.kind.replace("_", " "), tone, effect.created_at, effect.done_at)


def _of_step(step: TimelineStep, timeline: RunTimeline, below: _Below) -> Iterator[Node]:
    begin = step.started_at or step.responded_at
    title = f"{step.index + 1}. {timeline.model or 'Model'}"
    yield Node(f"step-{step.index}", 1, "model", title, "model", begin, step.responded_at)
    for number, call in enumerate(step.calls):
        begin = call.started_at or step.responded_at
        tone = "bad" if call.error else "tool"
        end = call.completed_at if call.completed_at or call.status in {"running", "deferred"} else begin
        yield Node(f"call-{step.index}-{number}", 2, "tool", call.tool_name, tone, begin, end)
        yield from below.waits(call.id, 3)
        yield from below.child(call.spawned_run_id, 3)
