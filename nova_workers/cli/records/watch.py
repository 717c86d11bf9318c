"""`nova watch`: what changes in the fleet, as it does."""

from contextlib import aclosing
from typing import Annotated, cast

import typer

from nova_workers.base.vocabulary import ChangeSubject, words_of
from nova_workers.cli.command import Session, remote
from nova_workers.cli.terminal.output import stamp
from nova_workers.contracts.changes import Changed, ChangeEvent, Reset

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@remote(app, "watch")
async def watch(
    session: Session,
    subjects: Annotated[
        list[str] | None,
        typer.Argument(
            help=f"Only changes of these: {', '.join(words_of(ChangeSubject))}. Default: all.", metavar="SUBJECT"
        ),
    ] = None,
    after: Annotated[str | None, typer.Option("--after", help="Begin after this cursor, as --json writes it.")] = None,
) -> None:
    """Show what changes: runs, questions, tasks, triggers, the inbox. A lost connection is resumed. Ctrl-C ends it."""
    # The API refuses others, and names all.
    named = cast("list[ChangeSubject]", subjects or [])
    async with aclosing(session.client.changes.follow(*named, after=after)) as feed:
        async for cursor, event in feed:
            if session.out.json:
                session.out.line({"cursor": cursor, **event.model_dump(mode="json", exclude_none=True)})
            else:
                _show(session, event)


def _show(session: Session, event: ChangeEvent) -> None:
    if isinstance(event, Changed):
        of = f"  {event.agent_id}" if event.agent_id else ""
        session.out.text(f"{stamp(event.at)}  {event.subject} {event.id}  {event.change}{of}")
    elif isinstance(event, Reset):
        session.out.note("Changes were missed. What follows is new.")
    else:
        session.out.note("Watching. Ctrl-C ends it.")
