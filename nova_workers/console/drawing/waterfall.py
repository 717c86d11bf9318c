"""A run as a waterfall: what took which time, as bars on one axis."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from markupsafe import Markup

from nova_workers.contracts.http.overview.timeline import RunTimeline, TimelineStep
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


class Bar(NamedTuple):
    """A row: `kind` is a word for what it is, `tone` its colour, `href` where its details are."""

    kind: str
    title: str
    tone: str
    begin: datetime
    end: datetime | None
    href: str | None
    svg: Markup


class _Span(NamedTuple):
    kind: str
    title: str
    tone: str
    begin: datetime
    end: datetime | None
    href: str | None = None


def waterfall(timeline: RunTimeline, now: datetime) -> list[Bar]:
    """Return the rows of a run's timeline, in the order in which they began; what is open lasts until now.

    Attempts, model calls and tools are on the run's own clock, which stands still while the run waits. Queues, waits,
    child runs and effects may take days, so they have a scale of their own: the longest of them.
    """
    spans = sorted(_spans(timeline), key=lambda span: span.begin)
    clock = _RunClock([span for span in spans if span.kind in _OWN], timeline, now)
    longest_s = max((_took_s(span, now) for span in spans if span.kind not in _OWN), default=0.0)
    return [Bar(*span, _draw(span, clock, longest_s, now)) for span in spans]


class _RunClock:
    """The time that a run spent on its work, from its first claim on."""

    def __init__(self, own: Sequence[_Span], timeline: RunTimeline, now: datetime) -> None:
        self._first = min((span.begin for span in own), default=now)
        self._rests = [(wait.created_at, wait.resolved_at or now) for wait in timeline.waits]
        self.total_s = self.at_s(max((span.end or now for span in own), default=now))

    def at_s(self, moment: datetime) -> float:
        """Return the seconds on the clock at a moment. Waits overlap only where one step asked for several."""
        rested_s, until = 0.0, self._first
        for begin, end in sorted(self._rests):
            rested_s += max(0.0, (min(end, moment) - max(begin, until)).total_seconds())
            until = max(until, min(end, moment))
        return max(0.0, (moment - self._first).total_seconds() - rested_s)


def _draw(span: _Span, clock: _RunClock, longest_s: float, now: datetime) -> Markup:
    if span.kind in _OWN:
        begin_s, end_s, total_s = clock.at_s(span.begin), clock.at_s(span.end or now), clock.total_s
    else:
        begin_s, end_s, total_s = 0.0, _took_s(span, now), longest_s
    scale = _WIDTH / max(total_s, 0.001)
    x = min(begin_s * scale, _WIDTH - _LEAST_WIDTH)
    width = min(max((end_s - begin_s) * scale, _LEAST_WIDTH), _WIDTH - x)
    return _BAR.format(width=int(_WIDTH), height=int(_HEIGHT), tone=span.tone, x=round(x, 1), w=round(width, 1))


def _took_s(span: _Span, now: datetime) -> float:
    return max(0.0, ((span.end or now) - span.begin).total_seconds())


def _spans(timeline: RunTimeline) -> Iterator[_Span]:
    yield _Span("queue", "Queued", "idle", timeline.created_at, timeline.started_at or timeline.finished_at)
    for attempt in timeline.attempts:
        if attempt.started_at is not None:
            ended = f", {str(attempt.ended).replace('_', ' ')}" if attempt.ended else ""
            tone = "bad" if attempt.ended == "lost" else "attempt"
            title = f"Attempt {attempt.attempt}{ended}"
            yield _Span("attempt", title, tone, attempt.started_at, attempt.ended_at)
    for step in timeline.steps:
        yield from _of_step(step, timeline.model)
    for wait in timeline.waits:
        yield _Span(
            "wait", f"Waits for {describe_waits([wait.kind])}", "warn", wait.created_at, wait.resolved_at, "#waits"
        )
    for effect in timeline.effects:
        tone = "bad" if effect.status == "failed" else "effect"
        yield _Span("effect", effect.kind.replace("_", " "), tone, effect.created_at, effect.done_at, "#effects")
    for child in timeline.children:
        yield _Span("run", f"Run of {child.agent_id}", "run", child.created_at, child.finished_at, f"/runs/{child.id}")


def _of_step(step: TimelineStep, model: str | None) -> Sequence[_Span]:
    here = f"#step-{step.index}"
    spans = [_Span("model", model or "Model", "model", step.started_at or step.responded_at, step.responded_at, here)]
    for call in step.calls:
        begin = call.started_at or step.responded_at
        tone = "bad" if call.error else "tool"
        end = call.completed_at if call.completed_at or call.status in {"running", "deferred"} else begin
        spans.append(_Span("tool", call.tool_name, tone, begin, end, here))
    return spans
