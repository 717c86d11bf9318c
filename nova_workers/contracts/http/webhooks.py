"""The HTTP contract of webhooks: addresses that receive events."""

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, Field, StrictBool, StringConstraints

from nova_workers.base.vocabulary import WebhookKind
from nova_workers.contracts.agents import AgentId
from nova_workers.contracts.bodies import Body, View
from nova_workers.contracts.content import storable

__all__ = [
    "MAX_GRACE_S",
    "WebhookCreate",
    "WebhookKind",
    "WebhookPatch",
    "WebhookRotate",
    "WebhookSecret",
    "WebhookView",
]


MAX_GRACE_S = 7 * 86_400
"""Longest time for which a replaced secret still signs."""

_Url = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2_000), AfterValidator(storable)
]
_Description = Annotated[str, StringConstraints(strip_whitespace=True, max_length=500), AfterValidator(storable)]
_Kinds = Annotated[tuple[WebhookKind, ...], Field(max_length=20)]


class WebhookCreate(Body):
    """A new webhook. The API generates its secret, and shows it only once."""

    url: _Url
    """An https address, without user name, password and fragment."""
    description: _Description = ""
    kinds: _Kinds = ()
    """The kinds of events that it receives; empty is all but ``audit_recorded``, which needs the scope `keys`."""
    agent_id: AgentId | None = None
    """Only events of this agent; null is all agents."""
    enabled: StrictBool = True


class WebhookPatch(Body):
    """Fields to change; omitted fields stay unchanged.

    Null clears ``agent_id``. ``enabled: true`` resets the failures.
    """

    url: _Url | None = None
    description: _Description | None = None
    kinds: _Kinds | None = None
    agent_id: AgentId | None = None
    enabled: StrictBool | None = None


class WebhookRotate(Body):
    """The replacement of a secret."""

    grace_s: Annotated[int, Field(ge=0, le=MAX_GRACE_S)] = 86_400
    """How long the old secret still signs, besides the new one. 0 ends it at once."""


class WebhookView(View):
    """A webhook without its secret."""

    id: str
    url: str
    description: str
    kinds: list[WebhookKind]
    agent_id: str | None
    enabled: bool
    disabled_reason: str | None
    """Why it was disabled automatically."""
    failures: int
    """Consecutive failed attempts."""
    failing_since: datetime | None
    rests_until: datetime | None = None
    """After some failures in a row no attempt is made before this time; ``POST /v1/delivery-targets`` ends it."""
    previous_expires_at: datetime | None
    """The time until which a replaced secret still signs."""
    created_at: datetime
    updated_at: datetime


class WebhookSecret(View):
    """A webhook with its secret, which is shown only once."""

    webhook: WebhookView
    secret: Annotated[str, Field(repr=False)]
    """``whsec_`` and Base64, the format of libraries for Standard Webhooks."""
