"""The filters and the order of the list of runs: as its address has them, and as the API's requests do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, Self, cast, get_args
from urllib.parse import urlencode

from starlette.datastructures import ImmutableMultiDict

from nova_workers.base.errors import InvalidInput
from nova_workers.base.vocabulary import Rating, RunSort, RunSource, SortOrder
from nova_workers.client.client import NovaClient
from nova_workers.contracts.http.run_lists import RunListQuery, RunPeriod, begin_of
from nova_workers.contracts.http.wire import RunPage, RunQueue, RunStatus

PERIODS: Final[Mapping[RunPeriod, str]] = {
    "hour": "Last hour",
    "today": "Today (UTC)",
    "day": "Last 24 hours",
    "week": "Last 7 days",
    "month": "Last 30 days",
}
"""Times until now, which an address keeps as such."""
SORTS: Final[Mapping[str, str]] = {
    "": "Newest first",
    "created.asc": "Oldest first",
    "cost": "Highest cost first",
    "cost.asc": "Lowest cost first",
    "tokens": "Most tokens first",
    "tokens.asc": "Fewest tokens first",
    "duration": "Longest first",
    "duration.asc": "Shortest first",
    "queue_time": "Longest queued first",
    "queue_time.asc": "Shortest queued first",
}


@dataclass(frozen=True, slots=True)
class RunQuery:
    """Which runs are listed, and in which order. The API refuses words that it does not know, and lists them."""

    statuses: tuple[RunStatus, ...] = ()
    text: str | None = None
    agent: str | None = None
    version: int | None = None
    """Of their agent, which executed them."""
    period: RunPeriod | None = None
    source: RunSource | None = None
    trigger: str | None = None
    channel: str | None = None
    tag: str | None = None
    metadata: str | None = None
    cost: float | None = None
    """The least that they cost, in US dollars."""
    rated: Rating | None = None
    queue: RunQueue | None = None
    thread: str | None = None
    parent: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    sort: RunSort = "created"
    order: SortOrder = "desc"

    @classmethod
    def of(cls, given: ImmutableMultiDict[str, str]) -> Self:
        """Return the filters of an address, or of a form with the same fields.

        Raises:
            InvalidInput: A time, a cost, a period or an order is none.
        """

        def text(name: str) -> str | None:
            return given.get(name, "").strip() or None

        sort, _, order = given.get("sort", "").partition(".")
        if sort and (sort not in get_args(RunSort) or order not in ("", "asc")):
            raise InvalidInput(f"{given['sort']!r} is no order of runs.", field="sort", status=422)
        if text("period") not in (None, *PERIODS):
            raise InvalidInput(f"{text('period')!r} is none of {', '.join(PERIODS)}.", field="period", status=422)
        return cls(
            statuses=cast(tuple[RunStatus, ...], tuple(status for status in given.getlist("status") if status)),
            text=text("text"),
            agent=text("agent"),
            version=_read_version(text("version")),
            period=cast(RunPeriod | None, text("period")),
            source=cast(RunSource | None, text("source")),
            trigger=text("trigger"),
            channel=text("channel"),
            tag=text("tag"),
            metadata=text("metadata"),
            cost=_read_cost(text("cost")),
            rated=cast(Rating | None, text("rated")),
            queue=cast(RunQueue | None, text("queue")),
            thread=text("thread"),
            parent=text("parent"),
            since=read_moment("since", text("since")),
            until=read_moment("until", text("until")),
            sort=cast(RunSort, sort or "created"),
            order="asc" if order else "desc",
        )

    @property
    def folded(self) -> int:
        """How many of the filters are set that the page folds."""
        folded = (
            self.version,
            self.source,
            self.trigger,
            self.channel,
            self.tag,
            self.metadata,
            self.cost,
            self.rated,
            self.queue,
        )
        return sum(one is not None for one in (*folded, self.thread, self.parent, self.since, self.until))

    @property
    def sort_field(self) -> str:
        """The order as the address has it; empty if it is the newest first."""
        return "" if (self.sort, self.order) == ("created", "desc") else self.sort + ".asc" * (self.order == "asc")

    def sorted_by(self, sort: RunSort) -> Self:
        """Return the same filters in the order of a heading: largest first, and the other way round if that is it."""
        again = self.sort == sort and self.order == "desc"
        return replace(self, sort=sort, order="asc" if again else "desc")

    def with_agent(self, agents: Sequence[tuple[str, str]]) -> Self:
        """Return the same filters with the id of an agent that is named by its label."""
        named = (self.agent or "").casefold()
        return replace(self, agent=next((id_ for id_, label in agents if named == label.casefold()), self.agent))

    def begin(self, now: datetime) -> datetime | None:
        """Return the time from which on runs are listed."""
        return begin_of(self.period, self.since, now)

    @classmethod
    def saved(cls, query: RunListQuery) -> Self:
        """Return the filters and the order of a saved list."""
        return cls(
            statuses=tuple(query.status),
            text=query.text,
            agent=query.agent_id,
            version=query.agent_version,
            period=query.period,
            source=query.source,
            trigger=query.trigger_id,
            channel=query.channel,
            tag=query.tag,
            metadata=query.metadata,
            cost=query.min_cost_usd,
            rated=query.rated,
            queue=query.queue,
            thread=query.thread_id,
            parent=query.parent_run_id,
            since=query.since,
            until=query.until,
            sort=query.sort,
            order=query.order,
        )

    def to_save(self) -> dict[str, object]:
        """Return them as the query of a list to save."""
        return {
            "status": list(self.statuses),
            "text": self.text,
            "agent_id": self.agent,
            "agent_version": self.version,
            "period": self.period,
            "source": self.source,
            "trigger_id": self.trigger,
            "channel": self.channel,
            "tag": self.tag,
            "metadata": self.metadata,
            "min_cost_usd": self.cost,
            "rated": self.rated,
            "queue": self.queue,
            "thread_id": self.thread,
            "parent_run_id": self.parent,
            "since": self.since,
            "until": self.until,
            "sort": self.sort,
            "order": self.order,
        }

    def fields(self, *, ordered: bool = True) -> list[tuple[str, str]]:
        """Return the filters, and the order, as fields of a form or an address."""
        named = {
            "text": self.text,
            "agent": self.agent,
            "version": None if self.version is None else str(self.version),
            "period": self.period,
            "source": self.source,
            "trigger": self.trigger,
            "channel": self.channel,
            "tag": self.tag,
            "metadata": self.metadata,
            "cost": None if self.cost is None else str(self.cost),
            "rated": self.rated,
            "queue": self.queue,
            "thread": self.thread,
            "parent": self.parent,
            "since": None if self.since is None else self.since.isoformat(),
            "until": None if self.until is None else self.until.isoformat(),
            "sort": (ordered and self.sort_field) or None,
        }
        return [*(("status", status) for status in self.statuses), *((n, v) for n, v in named.items() if v is not None)]

    def address(self, path: str = "/runs") -> str:
        """Return the address of a page with these filters."""
        fields = self.fields()
        return f"{path}?{urlencode(fields)}" if fields else path

    async def page(self, client: NovaClient, now: datetime, *, limit: int, cursor: str | None = None) -> RunPage:
        """Return a page of the runs that match."""
        return await client.runs.list(
            thread_id=self.thread,
            agent_id=self.agent,
            agent_version=self.version,
            status=self.statuses or None,
            queue=self.queue,
            trigger_id=self.trigger,
            parent_run_id=self.parent,
            since=self.begin(now),
            until=self.until,
            source=self.source,
            channel=self.channel,
            tag=self.tag,
            metadata=self.metadata,
            min_cost_usd=self.cost,
            rated=self.rated,
            text=self.text,
            sort=None if self.sort == "created" else self.sort,
            order=None if self.order == "desc" else self.order,
            media=False,
            limit=limit,
            cursor=cursor,
        )

    def body(self, now: datetime) -> dict[str, object]:
        """Return the filters as the body of a request about many runs has them, without their states."""
        key, _, value = (self.metadata or "").partition("=")
        fields: dict[str, object] = {
            "thread_id": self.thread,
            "agent_id": self.agent,
            "agent_version": self.version,
            "queue": self.queue,
            "trigger_id": self.trigger,
            "parent_run_id": self.parent,
            "since": self.begin(now),
            "until": self.until,
            "source": self.source,
            "channel": self.channel,
            "tag": self.tag,
            "metadata": {key: value} if self.metadata else None,
            "min_cost_usd": self.cost,
            "rated": self.rated,
            "text": self.text,
        }
        return {name: value for name, value in fields.items() if value is not None}


def read_moment(name: str, text: str | None) -> datetime | None:
    """Return a time; one without an offset, as browsers send it, is in UTC."""
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidInput(
            f"{text!r} is not a time, such as 2026-11-23T09:30 (UTC).", field=name, status=422
        ) from error


def _read_version(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal():
        raise InvalidInput(f"{text!r} is no version, such as 8.", field="version", status=422)
    return int(text)


def _read_cost(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError as error:
        raise InvalidInput(f"{text!r} is no amount in US dollars, such as 0.5.", field="cost", status=422) from error
