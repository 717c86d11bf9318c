"""`nova threads`: list, read, import, fork, restore and delete conversations."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from nova_workers.base.errors import InvalidInput
from nova_workers.base.vocabulary import RunSource
from nova_workers.cli.command import Session, build, changes, given, remote
from nova_workers.cli.records import states
from nova_workers.cli.resources import Argument, Filter, action, deletion, group, listing
from nova_workers.cli.terminal.output import Facts, short, stamp
from nova_workers.cli.terminal.paging import Column, Rows
from nova_workers.client import iterate
from nova_workers.client.thread_text import markdown_of_thread
from nova_workers.contracts.content import ContentBlock
from nova_workers.contracts.http.wire import MessageView, ThreadCreate, ThreadFork, ThreadPatch, ThreadView

app = group("List, read, import, fork and delete conversations.")

app.add_typer(states.app, name="state")

ThreadArgument = Annotated[str, typer.Argument(help="The thread's id.")]
TitleOption = Annotated[str | None, typer.Option(help="A title for people.")]
LabelOption = Annotated[str | None, typer.Option(help="A name for programs.")]

_PAGE = 100
_BLOCK_CHARS = 400


def _facts(thread: ThreadView) -> Facts:
    origin = f"{thread.forked_from_thread_id} at {thread.forked_from_turn_id}" if thread.forked_from_thread_id else None
    return (
        ("id", thread.id),
        ("title", thread.title),
        ("label", thread.label),
        ("agent", thread.agent_id),
        ("turns", thread.turn_count),
        ("active run", thread.active_run_id),
        ("waiting for", thread.waiting_for),
        ("forked from", origin),
        ("orchestration", thread.orchestration_id),
        ("ephemeral", "yes" if thread.ephemeral else None),
        ("origin", thread.origin),
        ("created by", thread.created_by),
        ("pinned", "yes" if thread.pinned else None),
        ("archived", "yes" if thread.archived else None),
        ("imported", thread.imported_at),
        ("metadata", json.dumps(thread.metadata) if thread.metadata else None),
        ("created", thread.created_at),
    )


def _by_this_key(given: bool | None) -> str | None:
    return "me" if given else None


listing(
    app,
    "List threads, newest first.",
    lambda nova: nova.threads.list,
    Rows[ThreadView](
        "No threads. Begin one with `nova send` or `nova chat`.",
        Column("id", lambda thread: thread.id),
        Column("agent", lambda thread: thread.agent_id),
        Column("title", lambda thread: short(thread.title or thread.label or ""), "text"),
        Column("turns", lambda thread: thread.turn_count),
        Column("active run", lambda thread: thread.active_run_id, "spare"),
        Column("updated", lambda thread: thread.updated_at, "spare"),
    ),
    agent=Filter("Only those of this agent.", sent_as="agent_id"),
    label=Filter("Only the one with this label."),
    origin=Filter("Only those that this began.", RunSource),
    mine=Filter("Only those that your API key created.", bool, sent_as="created_by", callback=_by_this_key),
    pinned=Filter("Only these. Default: both.", bool, names=("--pinned/--not-pinned",)),
    archived=Filter("Only these. Default: both.", bool, names=("--archived/--not-archived",)),
)


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
    session.out.facts(_facts(found))
    for message in messages:
        _show_message(session, message)
    for turn_id, notes in left_out.items():
        for note in notes:
            session.out.text(f"⊘ {turn_id} {short(note.strip('[]'), _BLOCK_CHARS)}", "yellow")
    if left_out:
        session.out.text(f"The model does not get that any more. To bring it back: nova threads restore {thread}")


@remote(app, "export")
async def export(
    session: Session,
    thread: ThreadArgument,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where to save it. Default: stdout.")] = None,
) -> None:
    """Write a conversation as Markdown: what was said, tool calls, and their results."""
    found = await session.client.threads.get(thread)
    text = "".join([piece async for piece in markdown_of_thread(session.client, found)])
    if output is None:
        session.out.done({"thread": found, "markdown": text}, text.rstrip("\n"))
        return
    try:
        output.write_text(text, "utf-8")
    except OSError as error:
        raise InvalidInput(f"{str(output)!r} cannot be written: {error.strerror}. Give a place with -o.") from error
    session.out.done({"saved": str(output)}, str(output))


@remote(app, "restore")
async def restore(
    session: Session,
    thread: ThreadArgument,
    turn: Annotated[str | None, typer.Argument(help="Only what was left out in this turn.")] = None,
) -> None:
    """Give the model again what was left out of a conversation because a provider refused it."""
    turns = list(await _left_out(session, thread)) if turn is None else [turn]
    restored = {each: (await session.client.threads.restore_content(thread, each)).restored for each in turns}
    lines = [f"restored: {short(note.strip('[]'), _BLOCK_CHARS)}" for each in restored.values() for note in each]
    session.out.done({"restored": restored}, "\n".join(lines) or "Nothing was left out.")


@remote(app, "rename")
async def rename(
    session: Session,
    thread: ThreadArgument,
    title: Annotated[str | None, typer.Argument(help="The new title.")] = None,
    label: LabelOption = None,
) -> None:
    """Change a thread's title or label."""
    change = build(ThreadPatch, changes("a title, or --label", title=title, label=label))
    session.out.record(await session.client.threads.patch(thread, change), _facts)


_THREAD = Argument("thread", ThreadArgument)

action(
    app,
    "pin",
    "Pin a thread: the console lists it first.",
    _THREAD,
    lambda nova, thread: nova.threads.patch(thread, ThreadPatch(pinned=True)),
    _facts,
)
action(
    app,
    "unpin",
    "Unpin a thread.",
    _THREAD,
    lambda nova, thread: nova.threads.patch(thread, ThreadPatch(pinned=False)),
    _facts,
)
action(
    app,
    "archive",
    "Archive a thread: the console lists it apart. It still takes messages.",
    _THREAD,
    lambda nova, thread: nova.threads.patch(thread, ThreadPatch(archived=True)),
    _facts,
)
action(
    app,
    "unarchive",
    "Take a thread out of the archive.",
    _THREAD,
    lambda nova, thread: nova.threads.patch(thread, ThreadPatch(archived=False)),
    _facts,
)


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
    options = given(agent_id=agent, title=title, label=label, effects=["embeddings"] if embeddings else None)
    body = build(ThreadCreate, _read_conversation(file) | options)
    if not body.messages:
        raise InvalidInput(f"{str(file)!r} has no messages.", field="file")
    session.out.record(await session.client.threads.create(body, idempotency_key=idempotency_key), _facts)


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
    body = build(ThreadFork, given(turn_id=turn, title=title, label=label))
    session.out.record(await session.client.threads.fork(thread, body), _facts)


deletion(app, "Delete threads.", "threads: Ids of threads.", lambda nova: nova.threads.delete)


async def _left_out(session: Session, thread: str) -> dict[str, list[str]]:
    """Return the notes in place of content, by turn, oldest first."""
    turns = [turn async for turn in iterate(session.client.threads.turns, thread, limit=_PAGE)]
    return {turn.id: turn.content_left_out for turn in reversed(turns) if turn.content_left_out}


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
