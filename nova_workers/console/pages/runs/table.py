"""The list of runs as a file for spreadsheets."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from nova_workers.console.access import agent_choices
from nova_workers.console.forms import build
from nova_workers.console.pages.runs.filters import RunQuery
from nova_workers.console.state import client_of, state_of
from nova_workers.contracts.http.run_lists import RunListQuery

_UTF_8 = "\ufeff"
"""The mark by which spreadsheets take UTF-8 for what it is."""


async def download(request: Request) -> Response:
    """Send the runs that the list shows on all its pages, at most 10,000, in its order.

    The first piece is read before the answer begins: a filter that the API refuses is a page that says why. A file that
    breaks off has a broken connection, and never looks complete.
    """
    client, now = client_of(request), state_of(request).clock.now()
    which = RunQuery.of(request.query_params)
    if which.agent is not None:
        which = which.with_agent(await agent_choices(client) or ())
    pieces = client.runs.csv(build(RunListQuery, which.to_save()))
    first = await anext(pieces)

    async def file() -> AsyncGenerator[str]:
        async with aclosing(pieces):
            yield _UTF_8 + first
            async for piece in pieces:
                yield piece

    headers = {
        "Content-Disposition": f'attachment; filename="runs-{now:%Y-%m-%d-%H%M}.csv"',
        "Cache-Control": "no-store",
    }
    return StreamingResponse(file(), media_type="text/csv; charset=utf-8", headers=headers)
