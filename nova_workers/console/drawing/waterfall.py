"""A run as a waterfall: what took which time, as bars on one axis."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from markupsafe import Markup

from nova_workers.contracts.http.overview.timeline import RunTimeline, TimelineStep

_WIDTH, _HEIGHT = 1000.0, 14.0
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
    """Return the rows of a run's timeline, in the order in which they began; what is open lasts until now."""
    spans = sorted(_spans(timeline), key=lambda span: span.begin)
    if not spans:
        return []
    first = min(span.begin for span in spans)
    last = max(span.end or now for span in spans)
    total_s = max((last - first).total_seconds(), 0.001)

    def draw(span: _Span) -> Markup:
        x = (span.begin - first).total_seconds() / total_s * _WIDTH
        width = max(((span.end or now) - span.begin).total_seconds() / total_s * _WIDTH, _LEAST_WIDTH)
        x = min(x, _WIDTH - _LEAST_WIDTH)
        return _BAR.format(
            width=int(_WIDTH), height=int(_HEIGHT), tone=span.tone, x=round(x, 1), w=round(min(width, _WIDTH - x), 1)
        )

    return [Bar(*span, draw(span)) for span in spans]


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
            "wait", f"Waits: {wait.kind.replace('_', ' ')}", "warn", wait.created_at, wait.resolved_at, "#waits"
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
