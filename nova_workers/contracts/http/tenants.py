"""The HTTP contract of a tenant's settings: time zone and working hours, share of a busy fleet, limits."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StrictBool, StringConstraints

from nova_workers.contracts.agents import Ceilings
from nova_workers.contracts.bodies import Body, OneLine, View
from nova_workers.contracts.http.keys import KeyCreated

MAX_TENANT_NAME = 200
TenantName = Annotated[OneLine, StringConstraints(min_length=1, max_length=MAX_TENANT_NAME, strip_whitespace=True)]
TenantState = Literal["active", "paused", "ending"]
"""`paused`: no new runs start. `ending`: it is unusable, and its rows are being deleted."""


class TenantView(View):
    """A tenant."""

    id: str
    name: str
    state: TenantState
    timezone: str
    """IANA name: the zone of its days and hours."""
    work_from: int
    work_until: int
    """Tasks are worked on from the hour `work_from` until this one, which may be past midnight; equal is all day."""
    work_every_s: int
    """How often each task is worked on within those hours."""
    weight: int
    """Its share of a busy fleet, relative to other tenants with queued runs."""
    max_running: int | None
    """Most concurrent runs, on all workers together."""
    max_cost_usd_per_day: float | None
    """Most that its runs may cost in a day."""
    ceilings: Ceilings | None
    """What its agents may be given at most. Null: everything, as for the operator's own tenant."""
    created_at: datetime


def _without_defaults(schema: dict[str, Any]) -> None:
    for field in schema.get("properties", {}).values():
        field.pop("default", None)


class TenantPatch(Body):
    """Settings to change; omitted ones stay unchanged. `weight` and `max_running` need the scope `operator`."""

    model_config = ConfigDict(json_schema_extra=_without_defaults)

    timezone: Annotated[str, StringConstraints(min_length=1, max_length=64)] = "UTC"
    """IANA name, such as ``Europe/Berlin``."""
    work_from: Annotated[int, Field(ge=0, le=23)] = 6
    work_until: Annotated[int, Field(ge=0, le=24)] = 22
    work_every_s: Annotated[int, Field(ge=60, le=604_800)] = 3_600
    weight: Annotated[int, Field(ge=1, le=1_000)] = 1
    max_running: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Null removes the cap."""
    max_cost_usd_per_day: Annotated[float, Field(gt=0, le=1_000_000_000, allow_inf_nan=False)] | None = None
    """Null removes the budget."""


class TenantChange(TenantPatch):
    """Fields of a tenant for an operator to change; omitted fields stay unchanged."""

    name: TenantName = ""
    paused: StrictBool = False
    """Whether it starts no new runs."""
    ceilings: Ceilings | None = None
    """What its agents may be given at most, as a whole. Null permits everything."""


class TenantCreate(Body):
    """A new tenant."""

    name: TenantName
    id: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")] | None = None
    """Generated if omitted."""
    timezone: Annotated[str, StringConstraints(min_length=1, max_length=64)] | None = None
    """IANA name; `NOVA_TIMEZONE` if omitted."""
    ceilings: Ceilings | None = Field(default_factory=Ceilings)
    """What its agents may be given at most. Null permits everything."""


class TenantCreated(TenantView):
    """A new tenant with its first key."""

    key: KeyCreated
    """Has every scope but `operator`. Its secret is shown only once."""
