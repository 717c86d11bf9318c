"""`nova search`: search messages by words and meaning."""

from datetime import datetime
from typing import Annotated

import typer

from nova_workers.cli.command import Session, remote
from nova_workers.cli.terminal.output import Output, short, stamp
from nova_workers.contracts.http.history import MAX_HITS, SearchResult

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_FORMATS = ["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"]


@remote(app, "search")
async def search(
    session: Session,
    query: Annotated[list[str], typer.Argument(help="Words, or a question.")],
    agent: Annotated[str | None, typer.Option(help="Only conversations of this agent.")] = None,
    since: Annotated[
        datetime | None, typer.Option(formats=_FORMATS, help="Only from this day or time on; local time.")
    ] = None,
    until: Annotated[
        datetime | None, typer.Option(formats=_FORMATS, help="Only before this day or time; local time.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=MAX_HITS, help="Most messages.")] = 10,
) -> None:
    """Search the messages of people and agents, best match first."""
    found = await session.client.history.search(
        " ".join(query), agent_id=agent, since=_local(since), until=_local(until), limit=limit
    )
    session.out.write(found, _show)


def _local(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.astimezone()


def _show(out: Output, found: SearchResult) -> None:
    if not found.items:
        out.note("Nothing was found. Conversations are searchable seconds after a run ended.")
    for hit in found.items:
        who = hit.agent_id if hit.role == "assistant" else "user"
        name = hit.thread_title or short(hit.thread_opening or "Untitled")
        out.text(f"{stamp(hit.said_at)} · {who} · {name} · {hit.thread_id}", "bold")
        out.text(hit.excerpt)
        out.text()
