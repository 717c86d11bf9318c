"""The HTTP contract of notes. The limits apply to the API and to agents' tools alike."""

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, Field, StrictBool, StringConstraints

from nova_workers.contracts.agents import AgentId
from nova_workers.contracts.authors.rights import ADDRESSEE, FREE, MESSAGE, authored
from nova_workers.contracts.bodies import Body, OneLine, View
from nova_workers.contracts.content import storable

MAX_NOTE_CHARS = 100_000
"""About 25,000 tokens. Longer text belongs in a file."""
MAX_NOTE_TITLE_CHARS = 200

NoteTitle = Annotated[
    OneLine,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_NOTE_TITLE_CHARS),
]
"""One line without control characters."""

NoteText = Annotated[str, StringConstraints(max_length=MAX_NOTE_CHARS), AfterValidator(storable)]
"""Markdown."""


@authored(
    agent_id=ADDRESSEE,
    title=MESSAGE,
    content=MESSAGE,
    shared=MESSAGE,
    pinned=MESSAGE,
)
class NoteCreate(Body):
    """A new note, owned by an agent."""

    agent_id: AgentId
    title: NoteTitle
    content: NoteText = ""
    shared: StrictBool = True
    """A note by a person is visible by default. Notes that agents write are private until shared."""
    pinned: StrictBool = False


@authored(
    title=MESSAGE,
    content=MESSAGE,
    shared=MESSAGE,
    pinned=MESSAGE,
    updated_at=FREE,
)
class NotePatch(Body):
    """Fields to change; omitted or null fields stay unchanged."""

    title: NoteTitle | None = None
    content: NoteText | None = None
    """The complete new content."""
    shared: StrictBool | None = None
    pinned: StrictBool | None = None
    updated_at: AwareDatetime | None = None
    """That of the note you know: the change is refused with 412 if the note has changed since."""


class NoteSummary(View):
    """A note without its content."""

    id: str
    agent_id: str
    """The agent that owns it."""
    title: str
    shared: bool
    """Whether people and other agents of the tenant may see it."""
    pinned: bool
    content_chars: int = Field(ge=0)
    created_at: datetime
    updated_at: datetime


class NoteView(NoteSummary):
    """A note with its content."""

    content: str
