"""Lists of runs that a person saved: a tab each."""

from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from nova_workers.client.client import NovaClient
from nova_workers.console.actions import Done, act
from nova_workers.console.forms import build, read_form
from nova_workers.console.pages.runs.filters import RunQuery
from nova_workers.console.state import client_of
from nova_workers.contracts.http.run_lists import RunListSave


class SavedTab(NamedTuple):
    """A saved list and its address."""

    id: str
    name: str
    href: str


async def load_tabs(client: NovaClient) -> list[SavedTab]:
    """Return the person's lists, in the order in which they were saved."""
    page = await client.run_lists.list()
    return [SavedTab(saved.id, saved.name, RunQuery.saved(saved.query).address()) for saved in page.items]


async def save(request: Request) -> Response:
    """Save the list that is shown, under a name."""
    form, client = await read_form(request), client_of(request)
    which = RunQuery.of(await request.form())  # pyright: ignore[reportArgumentType] - no field of it is a file
    wanted = {"name": form.value("name"), "query": which.to_save()}
    saved = Done("Saved as a tab.", which.address())
    return await act(request, which.address(), lambda: client.run_lists.save(build(RunListSave, wanted)), saved)


async def delete(request: Request) -> Response:
    """Delete a saved list; its runs stay."""
    calls, list_id = client_of(request).run_lists, request.path_params["list_id"]
    return await act(request, "/runs", lambda: calls.delete(list_id), "The tab is deleted. Its runs are still there.")
