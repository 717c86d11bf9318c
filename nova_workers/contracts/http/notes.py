"""Notes on the wire: what REST and the tools take, and what they show. Bounds are here, so that both keep the same."""

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from nova_workers.contracts.agents import AgentId
from nova_workers.contracts.bodies import Body, View
from nova_workers.contracts.content import storable

__all__ = [
    "MAX_NOTE_CHARS",
    "MAX_NOTE_TITLE_CHARS",
    "NoteCreate",
    "NotePatch",
    "NoteSummary",
    "NoteText",
    "NoteTitle",
    "NoteView",
]

MAX_NOTE_CHARS = 100_000
"""About 25,000 tokens. Whatever is longer is a file."""
MAX_NOTE_TITLE_CHARS = 200

NoteTitle = Annotated[
    str,
    StringConstraints(
        strip_whitespace=True, min_length=1, max_length=MAX_NOTE_TITLE_CHARS, pattern=r"^[^\x00-\x1f\x7f]+$"
    ),
]
"""One line without control characters."""

NoteText = Annotated[str, StringConstraints(max_length=MAX_NOTE_CHARS), AfterValidator(storable)]
"""Markdown."""


class NoteCreate(Body):
    """A new note, which belongs to an agent."""

    agent_id: AgentId
    title: NoteTitle
    content: NoteText = ""
    shared: bool = True
    """What a person writes for an agent is there to be seen. Notes that agents write are their own until shared."""
    pinned: bool = False


class NotePatch(Body):
    """Fields to change; those left out, or null, stay."""

    title: NoteTitle | None = None
    content: NoteText | None = None
    """The whole new content."""
    shared: bool | None = None
    pinned: bool | None = None


class NoteSummary(View):
    """A note without its content."""

    id: str
    agent_id: str
    """The agent that it belongs to."""
    title: str
    shared: bool
    """Whether people and other agents of the tenant are meant to see it."""
    pinned: bool
    content_chars: int = Field(ge=0)
    created_at: datetime
    updated_at: datetime


class NoteView(NoteSummary):
    """A note, whole."""

    content: str
