"""What runs ask people and clients."""

from __future__ import annotations

from collections.abc import Sequence

from nova_workers.base.vocabulary import ENDED_RUNS, EXTERNAL_WAITS
from nova_workers.contracts.http.wire import RunView
from nova_workers.contracts.waits import WaitView, questions_among


def open_questions(run: RunView) -> Sequence[WaitView]:
    """Return the waits of a run that a person ends."""
    return questions_among(run.waits)


def outside_waits(run: RunView) -> list[WaitView]:
    """Return the waits of a run that its client or a person ends."""
    return [wait for wait in run.waits if wait.request.kind in EXTERNAL_WAITS]


def is_settled(run: RunView) -> bool:
    """Return whether a run has ended, or waits for something outside the fleet."""
    return run.status in ENDED_RUNS or bool(outside_waits(run))
