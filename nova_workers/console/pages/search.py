"""Search in all conversations."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta

from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nova_workers.base.errors import InvalidInput
from nova_workers.console.navigation import NavEntry, PageModule
from nova_workers.console.paging import filter_of
from nova_workers.console.rendering import render
from nova_workers.console.state import client_of
from nova_workers.contracts.http.history import MAX_HITS, SearchResult

_WORD = re.compile(r"\w+")
_PREFIX_CHARS = 4
"""From so many letters on, the search also finds longer words that begin so."""


async def show(request: Request) -> Response:
    """Show the messages that fit a query best."""
    query = filter_of(request, "q")
    problem: str | None = None
    since = until = None
    try:
        since, until = _day(filter_of(request, "since")), _day(filter_of(request, "until"))
    except InvalidInput as error:
        problem = error.message
    result: SearchResult | None = None
    if query is not None and problem is None:
        result = await client_of(request).history.search(
            query,
            agent_id=filter_of(request, "agent"),
            since=since,
            until=None if until is None else until + timedelta(days=1),
            limit=MAX_HITS,
        )
    marked = _marker(query or "")
    return render(
        request,
        "chat/search.html",
        problem=problem,
        result=result,
        hits=[] if result is None else [(hit, marked(hit.excerpt)) for hit in result.items],
    )


def _day(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return datetime.combine(datetime.fromisoformat(text).date(), time.min, tzinfo=UTC)
    except ValueError as error:
        raise InvalidInput(f"{text!r} is not a date, such as 2026-11-23.", field="since") from error


def _marker(query: str) -> Callable[[str], Markup]:
    """Return a function that escapes a text and marks the words of a query in it."""
    words = sorted(set(_WORD.findall(query)), key=len, reverse=True)
    ends = (re.escape(word) + (r"\w*" if len(word) >= _PREFIX_CHARS else r"\b") for word in words)
    pattern = re.compile(rf"\b(?:{'|'.join(ends)})", re.IGNORECASE) if words else None

    def marked(text: str) -> Markup:
        if pattern is None:
            return escape(text)
        pieces, at = [], 0
        for found in pattern.finditer(text):
            pieces += [escape(text[at : found.start()]), Markup("<mark>{}</mark>").format(found.group())]
            at = found.end()
        return Markup("").join([*pieces, escape(text[at:])])

    return marked


PAGE = PageModule(
    routes=(Route("/search", show),),
    nav=(NavEntry("Work", "Search", "/search", "search", key="s", scope="runs:read"),),
)
