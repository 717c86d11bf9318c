"""The HTTP contract of the fleet: its queues, workers and pauses."""

from datetime import datetime
from typing import Annotated

from pydantic import StringConstraints

from nova_workers.contracts.agents import AgentId
from nova_workers.contracts.bodies import Body, View
from nova_workers.vocabulary import PauseScope, QueuedReason, RunQueue

__all__ = [
    "MAX_QUEUED_COUNTED",
    "FleetPause",
    "FleetView",
    "QueueDepth",
    "QueuedGroup",
    "QueuedView",
    "SwitchView",
    "WorkerView",
]


class QueueDepth(View):
    """The queued runs of one queue."""

    queue: str
    queued: int
    oldest_queued_age_s: float | None


MAX_QUEUED_COUNTED = 5_000
"""Of how many queued runs, the oldest, the reasons are counted."""


class QueuedGroup(View):
    """Queued runs of one queue that wait for the same reason."""

    queue: RunQueue
    reason: QueuedReason
    runs: int
    oldest_age_s: float
    """Since the run that is queued longest of these was queued."""


class QueuedView(View):
    """Why queued runs wait: of the key's tenant, or of all with the `operator` scope."""

    groups: list[QueuedGroup]
    """The largest first. Of at most the 5,000 oldest queued runs."""


class WorkerView(View):
    """A live worker process."""

    id: str
    host: str
    pid: int
    queues: list[str]
    slots: int
    busy: int
    draining: bool
    sandbox: str | None = None
    """What confines commands there: ``bubblewrap``, ``namespaces`` or ``landlock``; null is nothing."""
    seen_at: datetime


class SwitchView(View):
    """A pause in force."""

    scope: PauseScope
    target: str | None
    reason: str | None
    created_at: datetime


class FleetPause(Body):
    """What to pause or resume. `fleet` needs the `operator` scope; `agent` takes the agent's id."""

    scope: PauseScope = "tenant"
    agent_id: AgentId | None = None
    reason: Annotated[str, StringConstraints(max_length=500)] | None = None


class FleetView(View):
    """An overview of the fleet. Counts are of the key's tenant, or of all tenants with the `operator` scope."""

    runs: dict[str, int]
    """Open runs by status, and those that ended in the last hour."""
    queues: list[QueueDepth]
    workers: list[WorkerView] | None
    """Null without the scope `operator`: workers serve all tenants. Empty while Redis does not answer."""
    redis_answers: bool = True
    """Whether Redis answers. While it does not, messages are accepted, and start when it is back."""
    switches: list[SwitchView]
