"""The HTTP contract of a run that does not move: all reasons, and how a person moves it."""

from datetime import datetime
from typing import Annotated

from pydantic import StringConstraints

from nova_workers.base.vocabulary import RunReasonKind, RunStatus
from nova_workers.contracts.bodies import Body, OneLine, View


class RunReason(View):
    """One reason why a run has not moved."""

    kind: RunReasonKind
    text: str
    """What holds it, with its values, and what helps."""
    since: datetime | None = None
    until: datetime | None = None
    """When it ends, or is tried again, by itself."""


class RunReasons(View):
    """Why a run has not moved: every reason that holds now, the first to look at first."""

    run_id: str
    status: RunStatus
    at: datetime
    reasons: list[RunReason]


class RunFail(Body):
    """Why a person ends a run as failed."""

    reason: Annotated[OneLine, StringConstraints(min_length=1, max_length=500)]
    """Becomes a part of the run's error."""
