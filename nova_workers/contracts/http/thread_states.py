"""The HTTP contract of a thread's state document."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from nova_workers.contracts.authors.rights import FREE, MESSAGE, authored
from nova_workers.contracts.bodies import Body, View
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.thread_state import StateDocument, StatePatch

StateVersion = Annotated[int, Field(strict=True, ge=0, le=2**53)]


@authored(
    state=MESSAGE,
    version=FREE,
)
class ThreadStateReplace(Body):
    """A whole new state document."""

    state: StateDocument
    version: StateVersion
    """The version that it replaces; 0 where there was none yet."""


@authored(
    patch=MESSAGE,
    version=FREE,
)
class ThreadStatePatch(Body):
    """A change of the state document."""

    patch: StatePatch
    """A JSON Merge Patch (RFC 7396): objects are merged, null removes a field, other values replace."""
    version: StateVersion | None = None
    """Only if the document has this version."""


class ThreadStateView(View):
    """The state document of a thread."""

    state: JsonObject
    version: int
    """Grows with each change; 0 before the first."""
    updated_at: datetime | None
    """When it was changed last; null before the first change."""
