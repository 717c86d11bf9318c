"""The HTTP contract of message search."""

from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, StringConstraints

from nova_workers.contracts.bodies import View, not_a_number
from nova_workers.contracts.content import storable

MAX_QUERY_CHARS = 2_000
MAX_HITS = 50

SearchQuery = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_QUERY_CHARS),
    AfterValidator(storable),
]
"""Words to look for, or a question."""


def _in_utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("is not a time between the years 1 and 9999 in UTC") from error


Moment = Annotated[datetime, BeforeValidator(not_a_number), AfterValidator(_in_utc)]
"""A time in RFC 3339, or a date, which means its start. Without an offset it is in UTC."""


class SaidMessage(View):
    """The text of a message by a person or an agent."""

    message_id: str
    role: Literal["user", "assistant"]
    said_at: datetime
    text: str


class SearchHit(View):
    """A message that matches a query."""

    message_id: str
    turn_id: str
    depth: int
    """The depth of the turn."""
    thread_id: str
    thread_title: str | None
    thread_opening: str | None = None
    """The beginning of the first message of a thread without a title."""
    agent_id: str
    role: Literal["user", "assistant"]
    said_at: datetime
    excerpt: str
    """The text; for a long one, the parts around the words found."""
    score: float
    """Orders the hits of one search; not comparable between searches."""
    found_by: list[Literal["words", "meaning"]]


class SearchResult(View):
    """The hits of a search, best first."""

    items: list[SearchHit]
    by_meaning: bool
    """Whether meaning was compared as well; otherwise the search used words only."""
