"""Deliveries besides answers: to people in the inbox, to receivers outside through channels, and the files in them."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nova_workers.base.vocabulary import DeliveryKind, DeliveryStatus
from nova_workers.contracts.bodies import View

__all__ = [
    "AUDIT_HEAD",
    "INBOX",
    "DeliveryItem",
    "DeliveryKind",
    "DeliveryStatus",
    "DeliveryView",
    "NewDelivery",
    "Sender",
    "SentFileView",
    "WaitingTarget",
]


AUDIT_HEAD = "head"
"""The key of the chain's head in the payload of a delivery of the audit log."""

INBOX = "user"
"""The target of deliveries to the person. Any other is a webhook's id, the name of a channel, or a lane of pushes."""


@dataclass(frozen=True, slots=True)
class NewDelivery:
    """A delivery to add to the outbox, for one target.

    Attributes:
        payload: See `DeliveryView.payload`.
        target: Where it goes.
        webhook_id: The webhook, if that is the target.
    """

    id: str
    tenant_id: str
    kind: DeliveryKind
    target: str
    payload: dict[str, Any]
    agent_id: str | None = None
    thread_id: str | None = None
    run_id: str | None = None
    webhook_id: str | None = None


@dataclass(frozen=True, slots=True)
class DeliveryItem:
    """A delivery as a channel receives it.

    Attributes:
        id: The same in every attempt, so that a receiver can detect a repetition.
        target: The name of the channel, the id of the webhook, or a lane of pushes.
        payload: See `DeliveryView.payload`.
        attempt: The number of this attempt, from 1.
        claim: The number of this claim; what an earlier one writes late is ignored.
    """

    id: str
    tenant_id: str
    kind: DeliveryKind
    target: str
    payload: dict[str, Any]
    created_at: datetime
    attempt: int
    agent_id: str | None = None
    thread_id: str | None = None
    run_id: str | None = None
    webhook_id: str | None = None
    claim: int = 0


@dataclass(frozen=True, slots=True)
class Sender:
    """The run that sends a delivery."""

    tenant_id: str
    agent_id: str
    thread_id: str
    run_id: str


class DeliveryView(View):
    """A row of the outbox: a delivery to one target."""

    id: str
    kind: DeliveryKind
    status: DeliveryStatus
    target: str
    """`user` is the inbox for people; otherwise the id of a webhook, the name of a channel, or a lane of push
    notifications."""
    agent_id: str | None
    thread_id: str | None
    run_id: str | None
    payload: dict[str, Any]
    """`notification`: text. `file`: file_id, name, media_type, size_bytes, caption. `note`: note_id, title.
    `question`: wait_id, text, options, only_options, due_at. `approval`: wait_id, text, tool_name, params (JSON as
    text, cut), params_truncated, due_at. `POST /v1/runs/{run_id}/answers` answers these two.
    `run_completed`: status, stop_reason, source, text, text_truncated, error, created_at, finished_at.
    `work_order_completed`: trace_id, policy_id, scope, trace, result. `work_order_review`: the same without result.
    `audit_recorded`: ids; the request has the records. Or head: seq, hash, sealed_at; the request has them too.
    `feedback_given`: feedback_id, step, agent_version, name, score, label, comment, source, author.
    `score_drifted`: agent_id, found_at, before, after, p_value, threshold.
    `rollout_changed`: rollout_id, version, baseline_version, status, step, percent, reason, breach.
    `task_changed`: config, the name of the push notification configuration; the request has the run's status."""
    webhook_id: str | None = None
    attempts: int = 0
    """Delivery attempts so far. Deliveries to the inbox have none."""
    next_try_at: datetime | None = None
    """Time of the next attempt, while it is pending."""
    response_status: int | None = None
    """The HTTP status of the receiver's last response."""
    error: str | None
    """Why the last attempt failed."""
    created_at: datetime
    delivered_at: datetime | None


class WaitingTarget(View):
    """A webhook, a channel or a lane of push notifications that failed, and that deliveries wait for."""

    target: str
    """The id of a webhook, the name of a channel, or a lane of push notifications."""
    webhook_id: str | None
    url: str | None
    """The webhook's."""
    waiting: int
    """Deliveries that are to be sent, at most 1,000 of them."""
    next_try_at: datetime
    """Time of the next attempt: of the earliest delivery, or the end of the webhook's rest."""
    error: str
    """Why a recent attempt failed."""


class SentFileView(View):
    """A file that an agent sent, without its content."""

    id: str
    agent_id: str
    thread_id: str
    run_id: str
    name: str
    media_type: str
    size_bytes: int
    caption: str | None
    created_at: datetime
