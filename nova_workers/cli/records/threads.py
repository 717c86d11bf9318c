"""`nova threads`: list, read, import, fork, restore and delete conversations."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from nova_workers.base.errors import InvalidInput
from nova_workers.cli.command import Session, build, remote
from nova_workers.cli.terminal.output import Column, short, stamp
from nova_workers.cli.terminal.paging import CursorOption, LimitOption, show_page
from nova_workers.client import iterate
from nova_workers.contracts.content import ContentBlock
from nova_workers.contracts.http.wire import MessageView, ThreadCreate, ThreadFork, ThreadPatch, ThreadView

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="List, read, import, fork and delete conversations.",
)

ThreadArgument = Annotated[str, typer.Argument(help="The thread's id.")]
TitleOption = Annotated[str | None, typer.Option(help="A title for people.")]
LabelOption = Annotated[str | None, typer.Option(help="A name for programs.")]

_PAGE = 100
_BLOCK_CHARS = 400


@remote(app, "list")
async def list_threads(
    session: Session,
    agent: Annotated[str | None, typer.Option(help="Only those of this agent.")] = None,
    label: Annotated[str | None, typer.Option(help="Only the one with this label.")] = None,
    limit: LimitOption = 20,
    cursor: CursorOption = None,
) -> None:
    """List threads, newest first."""
    page = await session.client.threads.list(agent_id=agent, label=label, limit=limit, cursor=cursor)
    columns: tuple[Column, ...] = (
        *("id", "agent", ("title", "text"), "turns"),
        *(("active run", "spare"), ("updated", "spare")),
    )
    show_page(session.out, page, columns, _row, nothing="No threads. Begin one with `nova send` or `nova chat`.")


@remote(app, "show")
async def show(
    session: Session,
    thread: ThreadArgument,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Only the last messages.")] = None,
) -> None:
    """Show a conversation."""
    found = await session.client.threads.get(thread)
    messages = [message async for message in iterate(session.client.threads.messages, thread, limit=_PAGE)]
    messages = messages[-limit:] if limit else messages
    left_out = await _left_out(session, thread)
    if session.out.json:
        session.out.document({"thread": found, "messages": messages, "content_left_out": left_out})
        return
    _show_facts(session, found)
    for message in messages:
        _show_message(session, message)
    for turn_id, notes in left_out.items():
        for note in notes:
            session.out.text(f"⊘ {turn_id} {short(note.strip('[]'), _BLOCK_CHARS)}", "yellow")
    if left_out:
        session.out.text(f"The model does not get that any more. To bring it back: nova threads restore {thread}")


@remote(app, "restore")
async def restore(
    session: Session,
    thread: ThreadArgument,
    turn: Annotated[str | None, typer.Argument(help="Only what was left out in this turn.")] = None,
) -> None:
    """Give the model again what was left out of a conversation because a provider refused it."""
    turns = list(await _left_out(session, thread)) if turn is None else [turn]
    restored = {each: (await session.client.threads.restore_content(thread, each)).restored for each in turns}
    if session.out.json:
        session.out.document({"restored": restored})
        return
    notes = [note for each in restored.values() for note in each]
    for note in notes:
        session.out.text(f"restored: {short(note.strip('[]'), _BLOCK_CHARS)}")
    if not notes:
        session.out.text("Nothing was left out.")


@remote(app, "rename")
async def rename(
    session: Session,
    thread: ThreadArgument,
    title: Annotated[str | None, typer.Argument(help="The new title.")] = None,
    label: LabelOption = None,
) -> None:
    """Change a thread's title or label."""
    given = {name: value for name, value in (("title", title), ("label", label)) if value is not None}
    if not given:
        raise InvalidInput("Nothing to change: give a title, or --label.")
    _show(session, await session.client.threads.patch(thread, build(ThreadPatch, given)))


@remote(app, "import")
async def import_thread(
    session: Session,
    file: Annotated[Path, typer.Argument(help="JSON, or JSON lines; `-` reads standard input.")],
    agent: Annotated[str | None, typer.Option(help="The agent that continues it. Default: nova.")] = None,
    title: TitleOption = None,
    label: LabelOption = None,
    embeddings: Annotated[bool, typer.Option("--embeddings", help="Search by meaning finds it too.")] = False,
    idempotency_key: Annotated[
        str | None, typer.Option(help="Names this import for 24 hours: repeating it returns the same thread.")
    ] = None,
) -> None:
    """Create a thread with the messages of a conversation that took place elsewhere.

    The file has one message a line, a list of messages, or the body of `POST /v1/threads`. A message is an object with
    `role`, `content` and perhaps `created_at`.
    """
    given = _read_conversation(file)
    options = {"agent_id": agent, "title": title, "label": label, "effects": ["embeddings"] if embeddings else None}
    body = build(ThreadCreate, given | {name: value for name, value in options.items() if value is not None})
    if not body.messages:
        raise InvalidInput(f"{str(file)!r} has no messages.", field="file")
    _show(session, await session.client.threads.create(body, idempotency_key=idempotency_key))


def _read_conversation(file: Path) -> dict[str, Any]:
    """Return the body that a file has, or the messages in it.

    Raises:
        InvalidInput: The file cannot be read, or is neither JSON nor JSON lines; names the line.
    """
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{str(file)!r} cannot be read: {error}", field="file") from error
    try:
        found = json.loads(text)
    except ValueError:
        return {"messages": list(_read_lines(file, text))}
    if isinstance(found, dict) and "messages" in found:
        return found
    return {"messages": found if isinstance(found, list) else [found]}


def _read_lines(file: Path, text: str) -> Iterator[Any]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            yield json.loads(line)
        except ValueError as error:
            raise InvalidInput(
                f"Line {number} of {str(file)!r} is no JSON: {error}. Write the whole file as JSON, or one message a "
                "line.",
                field="file",
            ) from error


@remote(app, "fork")
async def fork(
    session: Session,
    thread: ThreadArgument,
    turn: Annotated[str | None, typer.Option(help="Go on from this turn. Default: the last.")] = None,
    title: TitleOption = None,
    label: LabelOption = None,
) -> None:
    """Create a thread that continues from a turn of this one."""
    given = {"turn_id": turn, "title": title, "label": label}
    body = build(ThreadFork, {name: value for name, value in given.items() if value is not None})
    _show(session, await session.client.threads.fork(thread, body))


@remote(app, "delete")
async def delete(session: Session, threads: Annotated[list[str], typer.Argument(help="Ids of threads.")]) -> None:
    """Delete threads."""
    for thread in threads:
        await session.client.threads.delete(thread)
        if not session.out.json:
            session.out.text(f"deleted {thread}")
    if session.out.json:
        session.out.document({"deleted": threads})


async def _left_out(session: Session, thread: str) -> dict[str, list[str]]:
    """Return the notes in place of content, by turn, oldest first."""
    turns = [turn async for turn in iterate(session.client.threads.turns, thread, limit=_PAGE)]
    return {turn.id: turn.content_left_out for turn in reversed(turns) if turn.content_left_out}


def _row(thread: ThreadView) -> tuple[str, ...]:
    return (
        thread.id,
        thread.agent_id,
        short(thread.title or thread.label or ""),
        str(thread.turn_count),
        thread.active_run_id or "",
        stamp(thread.updated_at),
    )


def _show(session: Session, thread: ThreadView) -> None:
    if session.out.json:
        session.out.document(thread)
    else:
        _show_facts(session, thread)


def _show_facts(session: Session, thread: ThreadView) -> None:
    origin = f"{thread.forked_from_thread_id} at {thread.forked_from_turn_id}" if thread.forked_from_thread_id else ""
    session.out.facts(
        (
            ("id", thread.id),
            ("title", thread.title or ""),
            ("label", thread.label or ""),
            ("agent", thread.agent_id),
            ("turns", str(thread.turn_count)),
            ("active run", thread.active_run_id or ""),
            ("waiting for", thread.waiting_for or ""),
            ("forked from", origin),
            ("orchestration", thread.orchestration_id or ""),
            ("ephemeral", "yes" if thread.ephemeral else ""),
            ("imported", "" if thread.imported_at is None else stamp(thread.imported_at)),
            ("metadata", json.dumps(thread.metadata) if thread.metadata else ""),
            ("created", stamp(thread.created_at)),
        )
    )


def _show_message(session: Session, message: MessageView) -> None:
    out = session.out
    # Tool results are in messages of the user role, but a user did not write them.
    if any(block.get("type") != "tool_result" for block in message.content):
        out.text()
        style = "bold cyan" if message.role == "user" else "bold green"
        out.text(f"{message.role} · {stamp(message.created_at)} · {message.turn_id}", style)
    for block in message.content:
        text, style = describe_block(block)
        if text:
            out.text(text, style)


def describe_block(block: ContentBlock) -> tuple[str, str]:
    """Return a content block as text, and its style."""
    match block.get("type"):
        case "text":
            return str(block.get("text", "")), ""
        case "thinking":
            return short(str(block.get("thinking", "")), _BLOCK_CHARS), "dim italic"
        case "tool_use":
            return f"→ {block.get('name')} {short(json.dumps(block.get('input')), _BLOCK_CHARS)}", "cyan"
        case "tool_result":
            mark = "✗" if block.get("is_error") else "✓"
            return f"{mark} {short(_result_text(block.get('content')), _BLOCK_CHARS)}", "dim"
        case other:
            return f"[{other}]", "dim"


def _result_text(content: Any) -> str:
    if isinstance(content, list):
        return " ".join(str(part.get("text", f"[{part.get('type')}]")) for part in content if isinstance(part, dict))
    return str(content or "")
