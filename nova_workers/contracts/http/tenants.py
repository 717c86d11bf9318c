"""A tenant's own settings: its days and hours, its share of a busy fleet, its bounds."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import ConfigDict, Field, StringConstraints

from nova_workers.contracts.bodies import Body, View

__all__ = ["TenantPatch", "TenantView"]


class TenantView(View):
    """A tenant as it stands."""

    id: str
    name: str
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
