"""The HTTP contract of policies of work orders, and of the secrets of their keys."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from nova_workers.contracts.authors.rights import DOCUMENT, authored
from nova_workers.contracts.bodies import Body, View

MAX_PREVIOUS_VALID_HOURS = 8_784


@authored(
    document=DOCUMENT,
)
class PolicyPut(Body):
    """A new version of a policy."""

    document: dict[str, Any]
    """The whole document; its `id` is the one of the path."""


class PolicyInfo(View):
    """A version of a policy, without its document."""

    id: str
    version: str
    description: str
    built_in: bool
    """Whether it comes with the fleet. A policy of the tenant with the same id takes its place."""
    number: int
    """Counts the tenant's versions; 0 for a built-in policy."""
    created_at: datetime | None
    """Null for a built-in policy."""


class PolicyView(PolicyInfo):
    """A version of a policy."""

    document: dict[str, Any]


class OrderSecretCreate(Body):
    """A new secret, which replaces those before it."""

    previous_valid_hours: Annotated[float, Field(ge=0, le=MAX_PREVIOUS_VALID_HOURS, allow_inf_nan=False)] = 24
    """How long orders with keys of earlier secrets are still accepted."""


class OrderSecretView(View):
    """A secret of the keys of work orders, without its value."""

    id: str
    created_at: datetime
    expires_at: datetime | None
    """Null for the newest one."""


class OrderSecretCreated(OrderSecretView):
    """A new secret with its value, which is shown only once."""

    secret: str
