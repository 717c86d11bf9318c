"""The HTTP contract of lists of runs that people save."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import Field, StringConstraints

from nova_workers.base.vocabulary import Rating, RunQueue, RunSort, RunSource, RunStatus, SortOrder
from nova_workers.contracts.bodies import Body, Moment, OneLine, View
from nova_workers.contracts.http.agents import MAX_VERSION

MAX_RUN_LISTS: Final = 50
"""Most lists of a person."""
RunPeriod = Literal["hour", "today", "day", "week", "month"]
"""A time until now: the last 60 minutes, since midnight (UTC), the last 24 hours, 7 or 30 days."""

_PERIODS: Final[Mapping[RunPeriod, timedelta]] = {
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(days=7),
    "month": timedelta(days=30),
}

_Id = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,80}$")]
_Word = Annotated[OneLine, StringConstraints(min_length=1, max_length=200)]


class RunListQuery(Body):
    """Which runs are listed, in which order. The fields are those of `GET /v1/runs`; null does not filter."""

    status: Annotated[list[RunStatus], Field(max_length=10)] = Field(default_factory=list[RunStatus])
    text: _Word | None = None
    agent_id: _Id | None = None
    agent_version: Annotated[int, Field(ge=1, le=MAX_VERSION)] | None = None
    """Only those that this version of their agent executed."""
    period: RunPeriod | None = None
    """Only those submitted in this time until now: it moves, where `since` stays."""
    source: RunSource | None = None
    trigger_id: _Id | None = None
    channel: _Word | None = None
    tag: _Word | None = None
    metadata: _Word | None = None
    """One entry, as `key=value`."""
    min_cost_usd: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    rated: Rating | None = None
    queue: RunQueue | None = None
    thread_id: _Id | None = None
    parent_run_id: _Id | None = None
    since: Moment | None = None
    until: Moment | None = None
    sort: RunSort = "created"
    order: SortOrder = "desc"

    def parameters(self, now: datetime) -> dict[str, Any]:
        """Return the parameters of `GET /v1/runs` that list these runs, `period` as a `since`."""
        fields = self.model_dump(exclude_defaults=True, exclude={"period", "since"})
        since = begin_of(self.period, self.since, now)
        return fields if since is None else {**fields, "since": since}


def begin_of(period: RunPeriod | None, since: datetime | None, now: datetime) -> datetime | None:
    """Return the time from which on runs are listed: the later one of `since` and the begin of the period until `now`.

    A period begins at a whole minute, so that the pages of a list have the same filter for as long.
    """
    if period is None:
        return since
    if period == "today":
        begin = now.replace(hour=0, minute=0, second=0, microsecond=0)
    else:
        begin = (now - _PERIODS[period]).replace(second=0, microsecond=0)
    return begin if since is None else max(begin, since)


class RunListSave(Body):
    """A list to save, in place of one of the same name."""

    name: Annotated[OneLine, StringConstraints(strip_whitespace=True, min_length=1, max_length=60)]
    query: RunListQuery


class RunListView(View):
    """A saved list of runs."""

    id: str
    name: str
    query: RunListQuery
    created_at: datetime
