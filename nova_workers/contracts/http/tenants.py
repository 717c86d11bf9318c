"""The HTTP contract of a tenant's settings: time zone and working hours, share of a busy fleet, limits."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints

from nova_workers.contracts.bodies import Body, View
from nova_workers.contracts.http.keys import KeyCreated

__all__ = [
    "MAX_TENANT_NAME",
    "TenantChange",
    "TenantCreate",
    "TenantCreated",
    "TenantName",
    "TenantPatch",
    "TenantState",
    "TenantView",
]

MAX_TENANT_NAME = 200
TenantName = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_TENANT_NAME, strip_whitespace=True, pattern=r"^[^\x00-\x1f]*$")
]
TenantState = Literal["active", "paused", "ending"]
"""`paused`: nothing new starts. `ending`: it cannot be used any more, and its rows are being deleted."""


class TenantView(View):
    """A tenant as it stands."""

    id: str
    name: str
    state: TenantState
    timezone: str
    """IANA name: what its days and hours are."""
    work_from: int
    work_until: int
    """Tasks are worked on from the hour `work_from` until this one, which may be past midnight; equal is all day."""
    work_every_s: int
    """How often each task is worked on within those hours."""
    weight: int
    """Its share of a busy fleet, beside those of others that wait."""
    max_running: int | None
    """Most runs at once, on all workers together."""
    max_cost_usd_per_day: float | None
    """Most that its runs may cost in a day."""
    created_at: datetime


def _without_defaults(schema: dict[str, Any]) -> None:
    for field in schema.get("properties", {}).values():
        field.pop("default", None)


class TenantPatch(Body):
    """Settings to change; those left out stay. `weight` and `max_running` take the scope `operator`."""

    model_config = ConfigDict(json_schema_extra=_without_defaults)

    timezone: Annotated[str, StringConstraints(min_length=1, max_length=64)] = "UTC"
    """IANA name, such as ``Europe/Berlin``."""
    work_from: Annotated[int, Field(ge=0, le=23)] = 6
    work_until: Annotated[int, Field(ge=0, le=24)] = 22
    work_every_s: Annotated[int, Field(ge=60, le=604_800)] = 3_600
    weight: Annotated[int, Field(ge=1, le=1_000)] = 1
    max_running: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Null takes the cap away."""
    max_cost_usd_per_day: Annotated[float, Field(gt=0, le=1_000_000_000, allow_inf_nan=False)] | None = None
    """Null takes the budget away."""


class TenantChange(TenantPatch):
    """What an operator changes of a tenant; fields left out stay."""

    name: TenantName = ""
    paused: bool = False
    """Whether nothing new starts in it."""


class TenantCreate(Body):
    """A new tenant."""

    name: TenantName
    id: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")] | None = None
    """Left out, one is made."""
    timezone: Annotated[str, StringConstraints(min_length=1, max_length=64)] | None = None
    """IANA name; `NOVA_TIMEZONE` if left out."""


class TenantCreated(TenantView):
    """A new tenant with its first key."""

    key: KeyCreated
    """Has every scope but `operator`. Its secret is shown this once."""
