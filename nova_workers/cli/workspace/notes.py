"""`nova notes`: read, write, share and delete the documents of agents."""

from typing import Annotated

import typer

from nova_workers.base.errors import InvalidInput
from nova_workers.cli.command import Session, build, remote
from nova_workers.cli.terminal.markdown import SafeMarkdown
from nova_workers.cli.terminal.output import Column, short, stamp
from nova_workers.cli.terminal.paging import CursorOption, LimitOption, show_page
from nova_workers.cli.terminal.text_input import read_text
from nova_workers.contracts.http.notes import NoteCreate, NotePatch, NoteSummary, NoteView

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Read, write, share and delete the documents of agents.",
)

NoteArgument = Annotated[str, typer.Argument(help="The note's id.")]
ContentOption = Annotated[str | None, typer.Option(help="Markdown; @FILE reads a file, - reads stdin.")]


@remote(app, "list")
async def list_notes(
    session: Session,
    agent: Annotated[str | None, typer.Option(help="Only those of this agent.")] = None,
    pinned: Annotated[bool, typer.Option("--pinned", help="Only pinned ones.")] = False,
    drafts: Annotated[bool, typer.Option("--drafts", help="Those too that no agent has shared.")] = False,
    limit: LimitOption = 50,
    cursor: CursorOption = None,
) -> None:
    """List notes that are shared, newest first."""
    page = await session.client.notes.list(
        agent_id=agent,
        pinned=True if pinned else None,
        shared=None if drafts else True,
        limit=limit,
        cursor=cursor,
    )
    columns: tuple[Column, ...] = (
        *("id", "agent", ("title", "text"), "state"),
        *(("updated", "spare"), ("characters", "spare")),
    )
    nothing = "No notes. Give an agent the capability notes."
    if not page.items and not drafts and not session.out.json:
        unshared = await session.client.notes.list(
            agent_id=agent, pinned=True if pinned else None, shared=False, limit=1
        )
        if unshared.items:
            nothing = "No notes are shared. `nova notes list --drafts` shows the others."
    show_page(session.out, page, columns, _row, nothing=nothing)


@remote(app, "show")
async def show(
    session: Session,
    note: NoteArgument,
    raw: Annotated[bool, typer.Option("--raw", help="The Markdown itself.")] = False,
) -> None:
    """Show a note: formatted in a terminal, its Markdown in a pipe."""
    found = await session.client.notes.get(note)
    out = session.out
    if out.json:
        out.document(found)
        return
    out.note(f"{found.title} · {found.agent_id} · {_state(found)} · {stamp(found.updated_at)}", "bold")
    if out.tty and not raw:
        out.render(SafeMarkdown(found.content))
    else:
        out.text(found.content)


@remote(app, "create")
async def create(
    session: Session,
    agent: Annotated[str, typer.Argument(help="The agent that it belongs to.")],
    title: Annotated[str, typer.Argument(help="One line.")],
    content: ContentOption = None,
    draft: Annotated[bool, typer.Option("--draft", help="Not shared with other agents.")] = False,
    pin: Annotated[bool, typer.Option("--pin", help="Pinned from the start.")] = False,
) -> None:
    """Write a note for an agent."""
    given = {"agent_id": agent, "title": title, "content": read_text(content or ""), "shared": not draft, "pinned": pin}
    _show(session, await session.client.notes.create(build(NoteCreate, given)))


@remote(app, "edit")
async def edit(
    session: Session,
    note: NoteArgument,
    title: Annotated[str | None, typer.Option(help="A new title.")] = None,
    content: ContentOption = None,
) -> None:
    """Change a note's title, or its whole content."""
    given = {"title": title, "content": None if content is None else read_text(content)}
    changed = {name: value for name, value in given.items() if value is not None}
    if not changed:
        raise InvalidInput("Nothing to change: give --title or --content.")
    await _patch(session, note, build(NotePatch, changed))


@remote(app, "share")
async def share(session: Session, note: NoteArgument) -> None:
    """Let other agents of the tenant read a note."""
    await _patch(session, note, NotePatch(shared=True))


@remote(app, "unshare")
async def unshare(session: Session, note: NoteArgument) -> None:
    """Hide a note from other agents."""
    await _patch(session, note, NotePatch(shared=False))


@remote(app, "pin")
async def pin(session: Session, note: NoteArgument) -> None:
    """Pin a note."""
    await _patch(session, note, NotePatch(pinned=True))


@remote(app, "unpin")
async def unpin(session: Session, note: NoteArgument) -> None:
    """Unpin a note."""
    await _patch(session, note, NotePatch(pinned=False))


@remote(app, "delete")
async def delete(session: Session, notes: Annotated[list[str], typer.Argument(help="Ids of notes.")]) -> None:
    """Delete notes for good."""
    for note in notes:
        await session.client.notes.delete(note)
        if not session.out.json:
            session.out.text(f"deleted {note}")
    if session.out.json:
        session.out.document({"deleted": notes})


async def _patch(session: Session, note_id: str, change: NotePatch) -> None:
    _show(session, await session.client.notes.patch(note_id, change))


def _row(note: NoteSummary) -> tuple[str, ...]:
    return (note.id, note.agent_id, short(note.title), _state(note), stamp(note.updated_at), str(note.content_chars))


def _state(note: NoteSummary) -> str:
    return ("shared" if note.shared else "draft") + (", pinned" if note.pinned else "")


def _show(session: Session, note: NoteView) -> None:
    if session.out.json:
        session.out.document(note)
        return
    session.out.facts(
        (
            ("id", note.id),
            ("title", note.title),
            ("agent", note.agent_id),
            ("state", _state(note)),
            ("characters", str(note.content_chars)),
            ("updated", stamp(note.updated_at)),
        )
    )
