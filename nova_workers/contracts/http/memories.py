"""The HTTP contract of memories: facts that all agents of a tenant share."""

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, StringConstraints

from nova_workers.contracts.authors.rights import MESSAGE, authored
from nova_workers.contracts.bodies import Body, View
from nova_workers.contracts.content import storable

MAX_MEMORY_CHARS = 2_000
"""A memory is a fact, not a document: about 500 tokens."""

PERSON = "person"
"""The author of memories saved through the API."""

MemoryText = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_MEMORY_CHARS),
    AfterValidator(storable),
]
"""One fact."""


@authored(
    content=MESSAGE,
)
class MemoryCreate(Body):
    """A fact to save."""

    content: MemoryText
    """A sentence that is understandable on its own."""


class MemoryView(View):
    """A stored fact."""

    id: str
    content: str
    saved_by: str
    """An agent's id, or `person`."""
    created_at: datetime
