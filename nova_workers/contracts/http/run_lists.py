"""The HTTP contract of lists of runs that people save."""

from datetime import datetime
from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints

from nova_workers.base.vocabulary import RunQueue, RunSort, RunSource, RunStatus, SortOrder
from nova_workers.contracts.bodies import Body, Moment, OneLine, View

MAX_RUN_LISTS: Final = 50
"""Most lists of a person."""
RunPeriod = Literal["hour", "today", "day", "week", "month"]
"""A time until now: the last 60 minutes, since midnight (UTC), the last 24 hours, 7 or 30 days."""

_Id = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,80}$")]
_Word = Annotated[OneLine, StringConstraints(min_length=1, max_length=200)]


class RunListQuery(Body):
    """Which runs are listed, in which order. The fields are those of `GET /v1/runs`; null does not filter."""

    status: Annotated[list[RunStatus], Field(max_length=10)] = Field(default_factory=list[RunStatus])
    text: _Word | None = None
    agent_id: _Id | None = None
    period: RunPeriod | None = None
    """Only those submitted in this time until now: it moves, where `since` stays."""
    source: RunSource | None = None
    trigger_id: _Id | None = None
    channel: _Word | None = None
    tag: _Word | None = None
    metadata: _Word | None = None
    """One entry, as `key=value`."""
    min_cost_usd: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    queue: RunQueue | None = None
    thread_id: _Id | None = None
    parent_run_id: _Id | None = None
    since: Moment | None = None
    until: Moment | None = None
    sort: RunSort = "created"
    order: SortOrder = "desc"


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
