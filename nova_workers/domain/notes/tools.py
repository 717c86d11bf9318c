"""The `notes` capability: markdown documents of an agent, private until it shares them."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from nova_workers.contracts.content import storable
from nova_workers.contracts.deliveries import Sender
from nova_workers.contracts.http.notes import MAX_NOTE_CHARS, NoteSummary, NoteText, NoteTitle
from nova_workers.domain.capabilities.rules.seam import (
    Capability,
    CapabilityContext,
    CapabilityParts,
    ToolCapability,
    ToolDeclaration,
    ToolInput,
)
from nova_workers.domain.notes import rules as notes
from nova_workers.domain.notes.rules import NoteChange, Passage
from nova_workers.domain.notes.sql import list_notes

_MAX_LISTED = 100
_READ_CHARS = 30_000
"""About 7,500 tokens per call."""

_NoteId = Annotated[
    str, StringConstraints(pattern=r"^note_[0-9A-Z]{26}$"), Field(description="As note_list and note_create give it.")
]
_Piece = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NOTE_CHARS), AfterValidator(storable)]


class _Create(ToolInput):
    title: Annotated[NoteTitle, Field(description="One line.")]
    content: Annotated[NoteText, Field(description="Markdown.")]


class _List(ToolInput):
    whose: Annotated[Literal["mine", "others"], Field(description="Your own, or those that other agents share.")] = (
        "mine"
    )
    pinned: Annotated[bool, Field(description="Only pinned ones.")] = False
    limit: Annotated[int, Field(ge=1, le=_MAX_LISTED, description="Most notes to return.")] = 50
    before: Annotated[_NoteId | None, Field(description="Only notes older than this one; to see more.")] = None


class _Read(ToolInput):
    note_id: _NoteId
    start: Annotated[int, Field(ge=0, le=MAX_NOTE_CHARS, description="The character to begin at.")] = 0


class _Update(ToolInput):
    note_id: _NoteId
    title: Annotated[NoteTitle | None, Field(description="A new title.")] = None
    content: Annotated[NoteText | None, Field(description="The whole new content.")] = None
    append: Annotated[_Piece | None, Field(description="Text to put at the end, on a line of its own.")] = None
    old_text: Annotated[_Piece | None, Field(description="A passage to replace; it must occur exactly once.")] = None
    new_text: Annotated[NoteText | None, Field(description="What comes in its place; empty removes it.")] = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.old_text is None) != (self.new_text is None):
            raise ValueError("old_text and new_text go together")
        ways = sum(given is not None for given in (self.content, self.append, self.old_text))
        if ways > 1:
            raise ValueError("give only one of content, append, and old_text with new_text")
        if ways == 0 and self.title is None:
            raise ValueError("nothing to change: give title, content, append, or old_text with new_text")
        return self


class _Delete(ToolInput):
    note_id: _NoteId


class _Share(ToolInput):
    note_id: _NoteId
    shared: Annotated[bool, Field(description="False takes it back.")] = True


class _Pin(ToolInput):
    note_id: _NoteId
    pinned: Annotated[bool, Field(description="False unpins it.")] = True


class _NoteTools:
    """An agent changes its own notes, and reads those that others share."""

    def __init__(self, parts: CapabilityParts) -> None:
        self._database = parts.database
        self._work = parts.work

    def declare(self) -> tuple[ToolDeclaration[Any], ...]:
        return (
            ToolDeclaration(
                name="note_create",
                description="Write a note in Markdown. Only you see it until you share it.",
                input=_Create,
                run=self._create,
                atomic=True,
            ),
            ToolDeclaration(
                name="note_list",
                description="List notes without their content, newest first.",
                input=_List,
                run=self._list,
                idempotent=True,
                read_only=True,
            ),
            ToolDeclaration(
                name="note_read",
                description=f"Read a note: yours, or a shared one; of a long one {_READ_CHARS} characters a call.",
                input=_Read,
                run=self._read,
                idempotent=True,
                read_only=True,
            ),
            ToolDeclaration(
                name="note_update",
                description="Change a note of yours: its title, and its content whole, at its end, or in one passage.",
                input=_Update,
                run=self._update,
                atomic=True,
            ),
            ToolDeclaration(
                name="note_delete",
                description="Delete a note of yours for good.",
                input=_Delete,
                run=self._delete,
                idempotent=True,
            ),
            ToolDeclaration(
                name="note_share",
                description="Share a note of yours with the user and with other agents; the user is told of it.",
                input=_Share,
                run=self._share,
                idempotent=True,
            ),
            ToolDeclaration(
                name="note_pin",
                description="Pin a note of yours, so that it is found at once.",
                input=_Pin,
                run=self._pin,
                idempotent=True,
            ),
        )

    async def _create(self, context: CapabilityContext, given: _Create) -> str:
        note = await notes.create_note(
            self._database, context.tenant_id, context.agent_id, title=given.title, content=given.content
        )
        return f"Created {note.id}."

    async def _list(self, context: CapabilityContext, given: _List) -> str:
        mine = given.whose == "mine"
        async with self._database.connection() as connection:
            found = await list_notes(
                connection,
                context.tenant_id,
                agent_id=context.agent_id if mine else None,
                not_of=None if mine else context.agent_id,
                shared=None if mine else True,
                pinned=True if given.pinned else None,
                before=given.before,
                limit=given.limit,
            )
        if not found:
            return "There are none."
        lines = [_line(note) for note in found]
        if len(found) == given.limit:
            lines.append(f"There may be more: ask with before={found[-1].id}.")
        return "\n".join(lines)

    async def _read(self, context: CapabilityContext, given: _Read) -> str:
        note = await notes.get_note(self._database, context.tenant_id, given.note_id, reader=context.agent_id)
        end = given.start + _READ_CHARS
        more = f"\n\n(It goes on: read with start={end}.)" if end < len(note.content) else ""
        return f"{_line(note)}\n\n{note.content[given.start : end] or '(nothing)'}{more}"

    async def _update(self, context: CapabilityContext, given: _Update) -> str:
        passage = None
        if given.old_text is not None and given.new_text is not None:
            passage = Passage(given.old_text, given.new_text)
        change = NoteChange(title=given.title, content=given.content, append=given.append, passage=passage)
        note = await self._change(context, given.note_id, change)
        return f"Changed {note.id}; it has {note.content_chars} characters now."

    async def _share(self, context: CapabilityContext, given: _Share) -> str:
        note = await self._change(context, given.note_id, NoteChange(shared=given.shared))
        return f"{note.id} is shared." if note.shared else f"{note.id} is not shared any more."

    async def _pin(self, context: CapabilityContext, given: _Pin) -> str:
        note = await self._change(context, given.note_id, NoteChange(pinned=given.pinned))
        return f"{note.id} is pinned." if note.pinned else f"{note.id} is not pinned any more."

    async def _delete(self, context: CapabilityContext, given: _Delete) -> str:
        await notes.delete_note(self._database, context.tenant_id, given.note_id, writer=context.agent_id)
        return f"Deleted {given.note_id}."

    async def _change(self, context: CapabilityContext, note_id: str, change: NoteChange) -> NoteSummary:
        sender = Sender(context.tenant_id, context.agent_id, context.thread_id, context.run_id)
        return await notes.change_note(self._work, context.tenant_id, note_id, change, sender=sender)


def _line(note: NoteSummary) -> str:
    marks = [f"by {note.agent_id}", f"{note.updated_at:%Y-%m-%d}", f"{note.content_chars} characters"]
    marks += [word for word, holds in (("shared", note.shared), ("pinned", note.pinned)) if holds]
    return f"{note.id} {note.title!r} ({', '.join(marks)})"


def capability(parts: CapabilityParts) -> Capability:
    """Return the capability."""
    return ToolCapability(
        "notes",
        "Markdown documents that an agent keeps, shares with people and pins.",
        _NoteTools(parts).declare(),
    )
