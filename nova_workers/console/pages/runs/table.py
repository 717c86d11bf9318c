"""The list of runs as a file for spreadsheets."""

from collections.abc import AsyncGenerator

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from nova_workers.console.access import agent_choices
from nova_workers.console.pages.runs.filters import RunQuery
from nova_workers.console.state import client_of, state_of
from nova_workers.contracts.http.run_csv import MAX_ROWS, csv_head, csv_rows

_PAGE = 200


async def download(request: Request) -> Response:
    """Send the runs that the list shows on all its pages, at most 10,000, in its order.

    The first page is read before the answer begins: a filter that the API refuses is a page that says why. A file that
    breaks off has a broken connection, and never looks complete.
    """
    client, now = client_of(request), state_of(request).clock.now()
    which = RunQuery.of(request.query_params)
    if which.agent is not None:
        which = which.with_agent(await agent_choices(client) or ())
    page = await which.page(client, now, limit=_PAGE)

    async def lines() -> AsyncGenerator[str]:
        found, sent = page, 0
        # Spreadsheets take UTF-8 for what it is by this mark.
        yield "\ufeff" + csv_head()
        while True:
            rows = found.items[: MAX_ROWS - sent]
            sent += len(rows)
            yield csv_rows(rows)
            if found.next_cursor is None or sent >= MAX_ROWS:
                return
            found = await which.page(client, now, limit=_PAGE, cursor=found.next_cursor)

    headers = {
        "Content-Disposition": f'attachment; filename="runs-{now:%Y-%m-%d-%H%M}.csv"',
        "Cache-Control": "no-store",
    }
    return StreamingResponse(lines(), media_type="text/csv; charset=utf-8", headers=headers)
