"""``GET /v1/runs`` and ``/v1/runs.csv``: the runs that match a filter, by time or by another value of theirs."""

from collections.abc import AsyncGenerator
from contextlib import ExitStack
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response, StreamingResponse

from nova_workers.base.vocabulary import RunSort, SortOrder
from nova_workers.contracts.http.run_csv import MAX_ROWS, csv_head, csv_rows
from nova_workers.contracts.http.wire import RunPage, RunView
from nova_workers.domain.agents.sql.former_ids import refuse_former_id
from nova_workers.domain.runs.sql import lists as run_lists
from nova_workers.domain.runs.sql.filters import RunFilter
from nova_workers.domain.runs.sql.lists import SEARCHED, SORTED, SortedKey
from nova_workers.ledger.database import Connection

from ...auth import Caller, RunsReader
from ...guard.archives import ArchiveResponse
from ...json_body import StrictRoute
from ...openapi import csv_file, problems
from ...pagination import PageQuery, PageRequest
from ...params import MediaQuery
from ...state import ApiState, State
from .run_filter import RunFilterQuery, key_of

router = APIRouter(prefix="/v1", tags=["runs"], route_class=StrictRoute)

_CSV_PAGE = 200
_CSV_PAGES = MAX_ROWS // _CSV_PAGE
"""How many pages a file has at most: they bound the search for rare runs as well."""

_SORT = f"What the list is sorted by; by another value than `created` it has the newest {SORTED:,} of those that match."
_ORDER = "`desc`, which is the default: the newest or largest first. Runs without the value are last in either."
SortQuery = Annotated[RunSort | None, Query(description=_SORT)]
OrderQuery = Annotated[SortOrder | None, Query(description=_ORDER)]


@router.get("/runs", responses=problems(400, 410, 422))
async def list_runs(
    *,
    caller: RunsReader,
    state: State,
    which: RunFilterQuery,
    sort: SortQuery = None,
    order: OrderQuery = None,
    media: MediaQuery = True,
    paging: PageQuery,
) -> RunPage:
    """List runs, newest first, or sorted by another value of theirs."""
    return await _page(state, caller, which, sort=sort, order=order, paging=paging, media=media)


class _CsvResponse(ArchiveResponse):
    media_type = "text/csv; charset=utf-8"


@router.get("/runs.csv", response_class=StreamingResponse, responses=problems(410, 422) | csv_file())
async def list_runs_as_csv(
    *, caller: RunsReader, state: State, which: RunFilterQuery, sort: SortQuery = None, order: OrderQuery = None
) -> Response:
    """List runs as a file for spreadsheets (RFC 4180), at most 10,000, in the order of the list.

    A file that is cut breaks its connection, in the middle of a chunked body: it never looks complete.
    """

    async def lines() -> AsyncGenerator[bytes]:
        paging = PageRequest(None, _CSV_PAGE)
        for _ in range(_CSV_PAGES):
            # A connection a page: a client that reads slowly holds none.
            page = await _page(state, caller, which, sort=sort, order=order, paging=paging, media=False)
            yield csv_rows(page.items).encode()
            if page.next_cursor is None:
                return
            paging = PageRequest(page.next_cursor, _CSV_PAGE)

    rows = lines()
    # The first page, before the answer begins: a filter that is refused is a 422 and not a cut connection.
    first = csv_head().encode() + await anext(rows)
    return _CsvResponse(first, rows, held=ExitStack(), settings=state.services.settings.api)


async def _page(
    state: ApiState,
    caller: Caller,
    which: RunFilter,
    *,
    sort: RunSort | None,
    order: SortOrder | None,
    paging: PageRequest,
    media: bool,
) -> RunPage:
    async with state.services.database.connection() as connection:
        await refuse_former_id(connection, caller.tenant_id, which.agent_id)
        if sort is None or sort == "created":
            return await _by_time(connection, caller, which, order=order or "desc", paging=paging, media=media)
        return await _by_value(connection, caller, which, sort=sort, order=order or "desc", paging=paging, media=media)


async def _by_time(
    connection: Connection, caller: Caller, which: RunFilter, *, order: SortOrder, paging: PageRequest, media: bool
) -> RunPage:
    listing = paging.of(caller.tenant_id, "runs", str, *key_of(which), order)
    found = await run_lists.list_runs(
        connection, caller.tenant_id, which, past=listing.key, limit=listing.rows, order=order, media=media
    )
    page = listing.page(found.runs, lambda run: run.id)
    if found.searched_to is None:
        return RunPage(items=page.items, next_cursor=page.next_cursor)
    return RunPage(items=page.items, next_cursor=listing.pager.write((found.searched_to,)), searched_within=SEARCHED)


async def _by_value(
    connection: Connection,
    caller: Caller,
    which: RunFilter,
    *,
    sort: RunSort,
    order: SortOrder,
    paging: PageRequest,
    media: bool,
) -> RunPage:
    listing = paging.of_parts(caller.tenant_id, "runs", (str, int, int, str), *key_of(which), sort, order)
    past = None if listing.key is None else SortedKey(*listing.key)
    found = await run_lists.list_sorted_runs(
        connection, caller.tenant_id, which, sort, order, past=past, limit=listing.rows, media=media
    )

    def key_of_row(row: tuple[RunView, SortedKey]) -> SortedKey:
        return row[1]

    page = listing.page(list(zip(found.runs, found.keys, strict=True)), key_of_row)
    return RunPage(
        items=[run for run, _ in page.items],
        next_cursor=page.next_cursor,
        sorted_within=SORTED if found.is_cut else None,
        searched_within=None if found.searched_to is None else SEARCHED,
    )
