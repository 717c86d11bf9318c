"""``/v1/activity``: what happened over time."""

from datetime import UTC, datetime, timedelta
from typing import Annotated
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Query

from nova_workers.base.errors import InvalidInput
from nova_workers.contracts.bodies import Moment
from nova_workers.contracts.http.overview.activity import MAX_BUCKETS, ActivityGrouping, ActivityView, BucketSize
from nova_workers.domain.overview.sql.activity import Period

from ...auth import RunsReader
from ...json_body import StrictRoute
from ...openapi import problems
from ...state import State

router = APIRouter(prefix="/v1/activity", tags=["activity"], route_class=StrictRoute)

_DEFAULT_PERIODS = {"minute": timedelta(hours=1), "hour": timedelta(days=1), "day": timedelta(days=30)}
_SIZES = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1), "day": timedelta(days=1)}

Since = Annotated[
    Moment | None,
    Query(alias="from", description="From the bucket with this time. Default: an hour, a day or 30 days before `to`."),
]
Until = Annotated[Moment | None, Query(alias="to", description="Before this; now if left out.")]


@router.get("", responses=problems(422))
async def get_activity(
    *,
    caller: RunsReader,
    state: State,
    since: Since = None,
    until: Until = None,
    bucket: BucketSize = "hour",
    group_by: ActivityGrouping | None = None,
) -> ActivityView:
    """Get runs accepted and ended, how long they waited and took, tokens and cost: by minute, hour or day.

    Buckets that have ended may be up to five minutes old. Days are those of the fleet's time zone.
    """
    end = until or state.services.clock.now()
    start = since or end - _DEFAULT_PERIODS[bucket]
    if start >= end:
        raise InvalidInput(f"from ({start.isoformat()}) is not before to ({end.isoformat()}).", field="from")
    if (end - start) / _SIZES[bucket] > MAX_BUCKETS - 1:
        raise InvalidInput(f"from and to are at most {MAX_BUCKETS - 1} buckets of a {bucket} apart.", field="from")
    timezone = state.services.settings.timezone
    periods = _periods(start, end, bucket, ZoneInfo(timezone))
    buckets = await state.activity.load(caller.tenant_id, periods, group_by)
    return ActivityView(
        bucket=bucket, group_by=group_by, since=periods[0][0], until=end, timezone=timezone, buckets=buckets
    )


def _periods(start: datetime, end: datetime, bucket: BucketSize, zone: ZoneInfo) -> list[Period]:
    """Return the buckets from the one with `start` to the one with the last moment before `end`, which is cut there."""
    if bucket == "day":
        local = start.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0)
        # Wall-clock days: one with a change of the clock has 23 or 25 hours.
        begins = [(local + timedelta(days=day)).astimezone(UTC) for day in range(MAX_BUCKETS + 1)]
    else:
        size = _SIZES[bucket]
        first = datetime.fromtimestamp(start.timestamp() // size.total_seconds() * size.total_seconds(), UTC)
        begins = [first + size * at for at in range(MAX_BUCKETS + 1)]
    begins = [begin for begin in begins if begin < end]
    return list(zip(begins, [*begins[1:], end], strict=True))
