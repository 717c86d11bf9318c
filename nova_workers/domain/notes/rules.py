"""Notes: who may see and change them, and how a change is applied.

An agent sees its own notes, and those that other agents of its tenant share; it changes only its own. People, who come
through REST with a key for the workspace, see and change all: what an agent does not share is a draft, not a secret.
Sharing delivers a note to them: the first time in a run it is added to the outbox.
"""

from dataclasses import dataclass
from datetime import datetime

from nova_workers.base.errors import Forbidden, InvalidInput, LimitExceeded, VersionMismatch, missing
from nova_workers.contracts.deliveries import Sender
from nova_workers.contracts.http.notes import MAX_NOTE_CHARS, NoteView
from nova_workers.domain.agents.sql.former_ids import refuse_former_id
from nova_workers.domain.delivery.rules.from_agents import add_to_outbox
from nova_workers.domain.delivery.sql.deliveries import withdraw
from nova_workers.domain.notes import sql as ledger
from nova_workers.ledger.database import Connection, Database
from nova_workers.ledger.work import Work

MAX_NOTES_PER_AGENT = 1_000
_MAX_SHARED_PER_RUN = 20
_QUOTE_CHARS = 80


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of a note, which must occur in it exactly once, and its replacement."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class NoteChange:
    """The fields to change; None keeps one. At most one of `content`, `append` and `passage` is given.

    Attributes:
        title: The new title.
        content: The whole new content.
        append: Added after the present content, on a line of its own.
        passage: One part to replace.
        shared: Whether people and other agents see it.
        pinned: Whether it is pinned.
    """

    title: str | None = None
    content: str | None = None
    append: str | None = None
    passage: Passage | None = None
    shared: bool | None = None
    pinned: bool | None = None


async def create_note(
    database: Database,
    tenant_id: str,
    agent_id: str,
    *,
    title: str,
    content: str,
    shared: bool = False,
    pinned: bool = False,
) -> NoteView:
    """Create a note of an agent.

    Raises:
        NotFound: There is no such agent.
        AgentRenamed: It has another id now.
        LimitExceeded: It has its maximum of notes.
    """
    async with database.connection() as connection:
        note = await ledger.add_note(
            connection,
            tenant_id,
            agent_id,
            title=title,
            content=content,
            shared=shared,
            pinned=pinned,
            at_most=MAX_NOTES_PER_AGENT,
        )
        if note is not None:
            return note
        await refuse_former_id(connection, tenant_id, agent_id)
        if await ledger.count_notes(connection, tenant_id, agent_id) < MAX_NOTES_PER_AGENT:
            raise missing("agent", agent_id, field="agent_id")
    raise LimitExceeded(
        f"Agent {agent_id!r} has {MAX_NOTES_PER_AGENT} notes, which is the most. Delete those that no longer matter.",
        limit=MAX_NOTES_PER_AGENT,
    )


async def get_note(database: Database, tenant_id: str, note_id: str, *, reader: str | None = None) -> NoteView:
    """Return a note.

    Args:
        database: The ledger.
        reader: The agent that reads it; None is a person.

    Raises:
        NotFound: There is no such note, or the reader may not see it.
    """
    async with database.connection() as connection:
        return _seen(await ledger.get_note(connection, tenant_id, note_id), note_id, reader)


async def change_note(
    work: Work,
    tenant_id: str,
    note_id: str,
    change: NoteChange,
    *,
    sender: Sender | None = None,
    known: datetime | None = None,
) -> NoteView:
    """Change a note atomically. No concurrent change is lost.

    Args:
        work: Begins the unit of work.
        change: What to change.
        sender: The run of the agent that changes it; None is a person.
        known: `updated_at` of the note that the change is based on; None does not check.

    Raises:
        NotFound: There is no such note, or the agent may not see it.
        Forbidden: It belongs to another agent.
        VersionMismatch: It was changed since `known`.
        InvalidInput: The passage does not occur exactly once.
        LimitExceeded: The result would be too long, or the run has shared its maximum of notes.
    """
    async with work.begin() as tx:
        connection = tx.connection
        note = await _own(connection, tenant_id, note_id, None if sender is None else sender.agent_id)
        if known is not None and known != note.updated_at:
            raise VersionMismatch(
                f"Note {note_id!r} was changed at {note.updated_at.isoformat()}, after the version that the change is "
                "based on. Read it again, then change it.",
                note_id=note_id,
            )
        changed = _changed(note, change)
        if changed == note:
            return note
        if note.shared and not changed.shared:
            await withdraw(connection, tenant_id, note.agent_id, "note", field="note_id", named=note.id)
        if changed.shared and not note.shared and sender is not None:
            payload = {"note_id": note.id, "title": changed.title}
            await add_to_outbox(tx, sender, "note", payload, same="note_id", at_most=_MAX_SHARED_PER_RUN)
        return await ledger.write_note(connection, tenant_id, changed)


async def delete_note(database: Database, tenant_id: str, note_id: str, *, writer: str | None = None) -> None:
    """Delete a note, and its delivery if it is still pending.

    Args:
        database: The ledger.
        writer: The agent that deletes it; None is a person.

    Raises:
        NotFound: There is no such note, or the agent may not see it.
        Forbidden: It belongs to another agent.
    """
    async with database.transaction() as connection:
        note = await _own(connection, tenant_id, note_id, writer)
        await withdraw(connection, tenant_id, note.agent_id, "note", field="note_id", named=note.id)
        await ledger.delete_note(connection, tenant_id, note.id)


async def _own(connection: Connection, tenant_id: str, note_id: str, writer: str | None) -> NoteView:
    note = _seen(await ledger.lock_note(connection, tenant_id, note_id), note_id, writer)
    if writer is not None and note.agent_id != writer:
        raise Forbidden(
            f"Note {note_id!r} belongs to agent {note.agent_id!r}: only it and people change it. "
            "Write a note of your own instead.",
            note_id=note_id,
        )
    return note


def _seen(note: NoteView | None, note_id: str, reader: str | None) -> NoteView:
    if note is None or not (reader is None or note.shared or note.agent_id == reader):
        raise missing("note", note_id, "Was it deleted?")
    return note


def _changed(note: NoteView, change: NoteChange) -> NoteView:
    """Return the note with the change applied."""
    content = _new_content(note.content, change)
    if len(content) > MAX_NOTE_CHARS:
        raise LimitExceeded(
            f"A note has at most {MAX_NOTE_CHARS} characters; this one would have {len(content)}. Begin another.",
            limit=MAX_NOTE_CHARS,
        )
    return note.model_copy(
        update={
            "title": note.title if change.title is None else change.title,
            "content": content,
            "shared": note.shared if change.shared is None else change.shared,
            "pinned": note.pinned if change.pinned is None else change.pinned,
        }
    )


def _new_content(content: str, change: NoteChange) -> str:
    if change.content is not None:
        return change.content
    if change.append is not None:
        return f"{content}{'' if not content or content.endswith(chr(10)) else chr(10)}{change.append}"
    if change.passage is None:
        return content
    old = change.passage.old
    first = content.find(old)
    if first == -1 or content.find(old, first + 1) != -1:
        shown = old if len(old) <= _QUOTE_CHARS else old[:_QUOTE_CHARS] + "…"
        problem = "does not occur in the note" if first == -1 else "occurs more than once in the note; give more of it"
        raise InvalidInput(f"old_text: {shown!r} {problem}. It must be there exactly once.", field="old_text")
    return content[:first] + change.passage.new + content[first + len(old) :]
