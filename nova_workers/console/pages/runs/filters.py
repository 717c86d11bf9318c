"""The filters of the list of runs: as its address has them, for the API's list, and for its bulk cancellation."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Self, cast
from urllib.parse import urlencode

from starlette.datastructures import ImmutableMultiDict

from nova_workers.base.errors import InvalidInput
from nova_workers.contracts.http.wire import RunQueue, RunStatus

PERIODS: Mapping[str, timedelta] = {
    "Last hour": timedelta(hours=1),
    "Last day": timedelta(days=1),
    "Last week": timedelta(days=7),
    "Last 30 days": timedelta(days=30),
}


@dataclass(frozen=True, slots=True)
class RunQuery:
    """Which runs are listed. The API refuses words that it does not know, with a message that lists those it does."""

    statuses: tuple[RunStatus, ...] = ()
    queue: RunQueue | None = None
    agent: str | None = None
    thread: str | None = None
    trigger: str | None = None
    parent: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    @classmethod
    def of(cls, given: ImmutableMultiDict[str, str]) -> Self:
        """Return the filters of an address, or of a form with the same fields.

        Raises:
            InvalidInput: A time is none.
        """

        def text(name: str) -> str | None:
            return given.get(name, "").strip() or None

        return cls(
            statuses=cast(tuple[RunStatus, ...], tuple(status for status in given.getlist("status") if status)),
            queue=cast(RunQueue | None, text("queue")),
            agent=text("agent"),
            thread=text("thread"),
            trigger=text("trigger"),
            parent=text("parent"),
            since=read_moment("since", text("since")),
            until=read_moment("until", text("until")),
        )

    @property
    def has_more(self) -> bool:
        """Whether one of the filters is set that the page folds."""
        return any((self.trigger, self.parent, self.since, self.until, self.queue))

    def within(self, period: timedelta, now: datetime) -> Self:
        """Return the same filters for the time until now, from a whole minute on."""
        return replace(self, since=(now - period).replace(second=0, microsecond=0), until=None)

    def fields(self) -> list[tuple[str, str]]:
        """Return the filters as fields of a form or an address."""
        named = {
            "queue": self.queue,
            "agent": self.agent,
            "thread": self.thread,
            "trigger": self.trigger,
            "parent": self.parent,
            "since": None if self.since is None else self.since.isoformat(),
            "until": None if self.until is None else self.until.isoformat(),
        }
        return [*(("status", status) for status in self.statuses), *((n, v) for n, v in named.items() if v is not None)]

    def address(self, path: str = "/runs") -> str:
        """Return the address of a page with these filters."""
        fields = self.fields()
        return f"{path}?{urlencode(fields)}" if fields else path


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
