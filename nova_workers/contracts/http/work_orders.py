"""The HTTP contract of work orders beside `AiWorkOrderV1` and `AiWorkResultV1`: lists, reviews and trails."""

from datetime import datetime
from typing import Any

from nova_workers.base.vocabulary import OrderState, ReviewVerdict, TrailAudience, WorkStopReason
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
