"""The HTTP contract of work orders beside `AiWorkOrderV1` and `AiWorkResultV1`: lists, reviews and trails."""

from datetime import datetime
from typing import Any

from nova_workers.base.vocabulary import OrderState, ReviewVerdict, RoleKind, TrailAudience, WorkStopReason
from nova_workers.contracts.bodies import Body, View


class WorkOrderView(View):
    """A work order without its content, for lists."""

    trace_id: str
    state: OrderState
    stop_reason: WorkStopReason
    """The stop reason of its result."""
    needs_human: bool
    scope: str
    policy_id: str
    policy_version: str
    trace: dict[str, Any]
    """The references that the order came with."""
    created_at: datetime
    ended_at: datetime | None
    review_due_at: datetime | None
    """The time until which a person can decide on an order in review."""


class OrderReview(Body):
    """A person's decision on the outcome of an order in review."""

    verdict: ReviewVerdict
    """`approve` returns the proposals as they are, `edit` returns `payload`, `reject` returns none."""
    payload: dict[str, Any] | None = None
    """The payload of the edited artifact, of the kind that the policy produces; needed for `edit`."""


class WorkOrderPartView(View):
    """One model job of an order, which one run executes. Without its content."""

    run_id: str
    run_status: str | None
    """The run's current status; null if it was deleted."""
    kind: RoleKind
    role: str
    """Its name in the policy."""
    round: int
    """The first one is 1."""
    engine: str | None
    model: str | None
    """The model that answered; null before the first answer."""
    provider: str | None
    calls: int
    """Model calls."""
    tokens: int
    """The input and output tokens of its calls so far."""
    cost_usd: float
    """The cost of its calls so far."""
    lost_usd: float
    """What calls may have cost beside that whose worker crashed."""
    stop_reason: WorkStopReason | None
    """The internal one; null while it is open."""
    created_at: datetime
    ended_at: datetime | None


class WorkOrderTrailEntry(View):
    """What happened to an order. Without content of the order, of prompts or of answers."""

    id: str
    audience: TrailAudience
    event: str
    data: dict[str, Any]
    created_at: datetime


class WorkOrderTrailView(View):
    """The trail of an order, oldest first. Empty if the order did not ask for one."""

    trace_id: str
    items: list[WorkOrderTrailEntry]
