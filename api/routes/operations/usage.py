"""``/v1/usage``: tokens and cost."""

from datetime import UTC, datetime, time, timedelta
from typing import Annotated
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Query

from nova_workers.base.errors import InvalidInput
from nova_workers.contracts.bodies import Moment
from nova_workers.contracts.http.usage_report import MAX_USAGE_DAYS, UsageGrouping, UsageReport
from nova_workers.domain.usage.sql import report as ledger

from ...auth import RunsReader
from ...json_body import StrictRoute
from ...openapi import problems
from ...state import State

router = APIRouter(prefix="/v1/usage", tags=["usage"], route_class=StrictRoute)

_DEFAULT_DAYS = 30

Since = Annotated[Moment | None, Query(alias="from", description="Not before. Instead of `days`.")]
Until = Annotated[Moment | None, Query(alias="to", description="Before this; now if left out.")]
Days = Annotated[
    int | None,
    Query(ge=1, le=MAX_USAGE_DAYS, description="As many whole days, the last with it; 30 without it and `from`."),
]


@router.get("", responses=problems(422))
async def get_usage(  # noqa: PLR0917 - a route's parameters are passed by name
    caller: RunsReader,
    state: State,
    group_by: UsageGrouping = "day",
    since: Since = None,
    until: Until = None,
    days: Days = None,
    limit: Annotated[int, Query(ge=1, le=1_000, description="Most groups; the total is of all.")] = 400,
) -> UsageReport:
    """Sum the tenant's tokens and cost by agent, day or model. Days are those of the fleet's time zone."""
    timezone = state.services.settings.timezone
    end = until or state.services.clock.now()
    if since is not None and days is not None:
        raise InvalidInput("days goes without from: give one of the two.", field="days")
    if since is None:
        last = end.astimezone(ZoneInfo(timezone)).date()
        first = last - timedelta(days=(days or _DEFAULT_DAYS) - 1)
        since = datetime.combine(first, time(), ZoneInfo(timezone)).astimezone(UTC)
    if since >= end:
        raise InvalidInput(f"from ({since.isoformat()}) is not before to ({end.isoformat()}).", field="from")
    if end - since > timedelta(days=MAX_USAGE_DAYS + 1):
        raise InvalidInput(f"from and to are at most {MAX_USAGE_DAYS} days apart.", field="from")
    async with state.services.database.connection() as connection:
        return await ledger.report_usage(
            connection,
            caller.tenant_id,
            group_by=group_by,
            since=since,
            until=end,
            timezone=timezone,
            limit=limit,
        )
