"""What is handed over beside answers: to people in the inbox, and outside through channels; and the files among it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nova_workers.contracts.bodies import View
from nova_workers.vocabulary import DeliveryKind, DeliveryStatus

__all__ = [
    "INBOX",
    "DeliveryItem",
    "DeliveryKind",
    "DeliveryStatus",
    "DeliveryView",
    "NewDelivery",
    "Sender",
    "SentFileView",
]


INBOX = "user"
"""The target of what waits for the person. Any other target is a webhook's id, or the name of a channel."""


@dataclass(frozen=True, slots=True)
class NewDelivery:
    """Something to put into the outbox for one target.

    Attributes:
        payload: As `DeliveryView.payload` says.
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
    """Something to hand to the world outside, as a channel gets it.

    Attributes:
        id: The same in every try: what a receiver tells a repetition by.
        target: The name of the channel, or the id of the webhook.
        payload: As `DeliveryView.payload` says.
        attempt: Which try this is, from 1.
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


@dataclass(frozen=True, slots=True)
class Sender:
    """The run that hands something over."""

    tenant_id: str
    agent_id: str
    thread_id: str
    run_id: str


class DeliveryView(View):
    """A row of the outbox: something for one target."""

    id: str
    kind: DeliveryKind
    status: DeliveryStatus
    target: str
    """For whom: `user` is the inbox, where a person looks; else the id of a webhook or the name of a channel."""
    agent_id: str | None
    thread_id: str | None
    run_id: str | None
    payload: dict[str, Any]
    """`notification`: text. `file`: file_id, name, media_type, size_bytes, caption. `note`: note_id, title.
    `question`: wait_id, text, options, due_at. `approval`: wait_id, text, tool_name, params (JSON as text, cut),
    params_truncated, due_at. `POST /v1/runs/{run_id}/answers` answers these two.
    `run_completed`: status, stop_reason, source, text, text_truncated, error, created_at, finished_at."""
    webhook_id: str | None = None
    attempts: int = 0
    """Tries so far. Nobody tries what is in the inbox."""
    next_try_at: datetime | None = None
    """When it is tried next, while it is pending."""
    response_status: int | None = None
    """The HTTP status that the receiver answered last."""
    error: str | None
    """Why the last try failed."""
    created_at: datetime
    delivered_at: datetime | None


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
