"""A run as a tree with bars."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from nova_workers.console.drawing.trace import Node, trace
from nova_workers.contracts.http.overview.timeline import (
    AttemptView,
    RunTimeline,
    TimelineEffect,
    TimelineStep,
    TimelineWait,
)

_BEGIN = datetime(2026, 11, 23, 9, tzinfo=UTC)
_WAITED_S = 3 * 86_400


def _at(seconds: float) -> datetime:
    return _BEGIN + timedelta(seconds=seconds)


def _part(bar: Node) -> tuple[float, float]:
    """Return where a bar begins and how long it is, as parts of its lane."""
    x, width = (float(re.findall(rf' {name}="([\d.]+)"', str(bar.svg))[-1]) for name in ("x", "width"))
    return round(x / 1000, 2), round(width / 1000, 2)


def test_the_steps_of_a_run_that_waited_for_days_are_on_a_clock_that_stood_still() -> None:
    claimed, back = 1, 5 + _WAITED_S
    steps = [
        TimelineStep.model_construct(
            index=at, attempt=at + 1, started_at=_at(begin), responded_at=_at(begin + 4), calls=[]
        )
        for at, begin in enumerate((claimed, back))
    ]
    timeline = RunTimeline.model_construct(
        created_at=_BEGIN,
        started_at=_at(claimed),
        finished_at=_at(back + 4),
        model="sonnet",
        steps=steps,
        attempts=[
            AttemptView(attempt=1, worker_id=None, started_at=_at(claimed), ended_at=_at(5), ended="waiting"),
            AttemptView(attempt=2, worker_id=None, started_at=_at(back), ended_at=_at(back + 4), ended="succeeded"),
        ],
        waits=[
            TimelineWait.model_construct(
                id="w", kind="user", tool_call_id="c", child_run_id=None, created_at=_at(5), resolved_at=_at(back)
            )
        ],
        effects=[
            TimelineEffect.model_construct(
                kind="title", status="done", created_at=_at(back + 4), done_at=_at(back + 4 + _WAITED_S / 2)
            )
        ],
        children=[],
        next_cursor=None,
    )
    drawn = [(bar.kind, *_part(bar)) for bar in trace(timeline, _at(back + 99))]
    assert sorted(drawn) == [
        ("attempt", 0.0, 0.5),
        ("attempt", 0.5, 0.5),
        ("effect", 0.0, 0.5),
        ("model", 0.0, 0.5),
        ("model", 0.5, 0.5),
        ("queue", 0.0, 0.0),
        ("wait", 0.0, 1.0),
    ]
