"""Webhooks on the wire: addresses that hear of what happens here."""

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from nova_workers.contracts.agents import AgentId
from nova_workers.contracts.bodies import Body, View
from nova_workers.contracts.content import storable
from nova_workers.vocabulary import WebhookKind

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
"""Longest time for which a replaced secret signs too."""

_Url = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2_000), AfterValidator(storable)
]
_Description = Annotated[str, StringConstraints(strip_whitespace=True, max_length=500), AfterValidator(storable)]
_Kinds = Annotated[tuple[WebhookKind, ...], Field(max_length=20)]


class WebhookCreate(Body):
    """A new webhook. Its secret is made here, and told once."""

    url: _Url
    """An https address, without user name, password and fragment."""
    description: _Description = ""
    kinds: _Kinds = ()
    """What it is told of; empty is everything."""
    agent_id: AgentId | None = None
    """Only of this agent; null is all."""
    enabled: bool = True


class WebhookPatch(Body):
    """Fields to change; those left out stay. Null clears ``agent_id``. ``enabled: true`` forgives past failures."""

    url: _Url | None = None
    description: _Description | None = None
    kinds: _Kinds | None = None
    agent_id: AgentId | None = None
    enabled: bool | None = None


class WebhookRotate(Body):
    """How a secret is replaced."""

    grace_s: Annotated[int, Field(ge=0, le=MAX_GRACE_S)] = 86_400
    """So long the old secret signs too, beside the new one. 0 ends it at once."""


class WebhookView(View):
    """A webhook as it stands, without its secret."""

    id: str
    url: str
    description: str
    kinds: list[WebhookKind]
    agent_id: str | None
    enabled: bool
    disabled_reason: str | None
    """Why it was switched off by itself."""
    failures: int
    """Tries that failed in a row."""
    failing_since: datetime | None
    previous_expires_at: datetime | None
    """Until when a replaced secret signs too."""
    created_at: datetime
    updated_at: datetime


class WebhookSecret(View):
    """A webhook with its secret, which is shown this once."""

    webhook: WebhookView
    secret: Annotated[str, Field(repr=False)]
    """``whsec_`` and Base64, as libraries for Standard Webhooks take it."""
