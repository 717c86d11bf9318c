"""`nova notes`: read, write, share and delete the documents of agents."""

from typing import Annotated

import typer

from nova_workers.cli.command import Session, build, changes, remote
from nova_workers.cli.resources import Argument, action, deletion, group
from nova_workers.cli.terminal.markdown import SafeMarkdown
from nova_workers.cli.terminal.output import Facts, short, stamp
from nova_workers.cli.terminal.paging import Column, CursorOption, LimitOption, Rows, show_page
from nova_workers.cli.terminal.text_input import read_option, read_text
from nova_workers.contracts.http.notes import NoteCreate, NotePatch, NoteSummary, NoteView

app = group("Read, write, share and delete the documents of agents.")

_NONE_SHARED = "No notes are shared. `nova notes list --drafts` shows the others."

NoteArgument = Annotated[str, typer.Argument(help="The note's id.")]
_NOTE = Argument("note", NoteArgument)
ContentOption = Annotated[str | None, typer.Option(help="Markdown; @FILE reads a file, - reads stdin.")]


def _state(note: NoteSummary) -> str:
    return ("shared" if note.shared else "draft") + (", pinned" if note.pinned else "")


def _facts(note: NoteView) -> Facts:
    return (
        ("id", note.id),
        ("title", note.title),
        ("agent", note.agent_id),
        ("state", _state(note)),
        ("characters", note.content_chars),
        ("updated", note.updated_at),
    )


_ROWS = Rows[NoteSummary](
    "No notes. Give an agent the capability notes.",
    Column("id", lambda note: note.id),
    Column("agent", lambda note: note.agent_id),
    Column("title", lambda note: short(note.title), "text"),
    Column("state", _state),
    Column("updated", lambda note: note.updated_at, "spare"),
    Column("characters", lambda note: note.content_chars, "spare"),
)


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
    notes, only_pinned = session.client.notes, True if pinned else None
    page = await notes.list(
        agent_id=agent, pinned=only_pinned, shared=None if drafts else True, limit=limit, cursor=cursor
    )
    has_drafts = False
    if not page.items and not drafts and not session.out.json:
        has_drafts = bool((await notes.list(agent_id=agent, pinned=only_pinned, shared=False, limit=1)).items)
    show_page(session.out, page, _ROWS, nothing=_NONE_SHARED if has_drafts else None)


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
    session.out.record(await session.client.notes.create(build(NoteCreate, given)), _facts)


@remote(app, "edit")
async def edit(
    session: Session,
    note: NoteArgument,
    title: Annotated[str | None, typer.Option(help="A new title.")] = None,
    content: ContentOption = None,
) -> None:
    """Change a note's title, or its whole content."""
    changed = changes("--title or --content", title=title, content=read_option(content))
    change = build(NotePatch, changed)
    session.out.record(await session.client.notes.patch(note, change), _facts)


def _switch(name: str, help: str, change: NotePatch) -> None:
    action(app, name, help, _NOTE, lambda nova, note: nova.notes.patch(note, change), _facts)


_switch("share", "Let other agents of the tenant read a note.", NotePatch(shared=True))
_switch("unshare", "Hide a note from other agents.", NotePatch(shared=False))
_switch("pin", "Pin a note.", NotePatch(pinned=True))
_switch("unpin", "Unpin a note.", NotePatch(pinned=False))
deletion(app, "Delete notes for good.", "notes: Ids of notes.", lambda nova: nova.notes.delete)
