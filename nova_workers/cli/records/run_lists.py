"""`nova run-lists`: lists of runs that you saved; the console shows them as tabs."""

from typing import Annotated

import typer

from nova_workers.cli.command import Session, build, remote
from nova_workers.cli.records.run_options import RunOptions, find_list
from nova_workers.cli.resources import end_each, group
from nova_workers.cli.terminal.output import Facts
from nova_workers.cli.terminal.paging import Column, Rows, show_page
from nova_workers.contracts.http.run_lists import RunListQuery, RunListSave, RunListView

app = group("Save lists of runs under names. Without a command: list.", lists=True)


def _spelled(query: RunListQuery) -> str:
    """Return the fields that filter or sort, such as ``status=failed period=week sort=cost``."""
    fields = query.model_dump(mode="json", exclude_defaults=True)
    return " ".join(f"{name}={','.join(v) if isinstance(v, list) else v}" for name, v in fields.items()) or "all runs"


_ROWS = Rows[RunListView](
    "You saved no list.",
    Column("name", lambda saved: saved.name),
    Column("runs", lambda saved: _spelled(saved.query), "text"),
    Column("id", lambda saved: saved.id, "spare"),
)


def _facts(saved: RunListView) -> Facts:
    return (("id", saved.id), ("name", saved.name), ("query", _spelled(saved.query)), ("created", saved.created_at))


@remote(app, "list")
async def list_saved(session: Session) -> None:
    """List the lists of runs that you saved."""
    show_page(session.out, await session.client.run_lists.list(), _ROWS)


@remote(app, "save")
async def save(
    session: Session,
    name: Annotated[str, typer.Argument(help="Its name. A list that has it is replaced.")],
    which: RunOptions,
) -> None:
    """Save the runs that the options select, and their order, under a name for `nova runs list --saved`."""
    body = build(RunListSave, {"name": name, "query": which.query()})
    session.out.record(await session.client.run_lists.save(body), _facts)


@remote(app, "delete")
async def delete(session: Session, names: Annotated[list[str], typer.Argument(help="Names or ids of lists.")]) -> None:
    """Delete saved lists; their runs stay."""
    found = [(await find_list(session.client, name)).id for name in names]
    await end_each(session, found, session.client.run_lists.delete, "deleted")
