"""Where engines whose SDK keeps transcripts of its own leave them, so that any worker can go on with any session.

Above the seam: `runs` binds a store to one run, and with it to one tenant and thread. Below it: engines. What an entry
says is the SDK's business; a store keeps it as it is.

The ledger stays the truth of a conversation. A session only keeps what the SDK knows beside it, so an engine must be
able to do without: a session that is gone, or that tells another story than the ledger, is not resumed.
"""

from dataclasses import dataclass
from typing import Protocol

from nova_workers.contracts.content import JsonObject

__all__ = ["NewSession", "SessionStore", "StoredSession"]


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session as one turn left it: the session that the turn went on with, and what the turn added.

    Attributes:
        id: New in each turn. So a thread that goes back to an older turn finds the session as it was then, and two
            workers that both believe to own a run do not write over each other.
        parent_id: The session before; None where `entries` are all there is.
        entries: What was added, in order.
        fingerprint: Of the conversation that the session tells; see `StoredSession`.
    """

    id: str
    parent_id: str | None
    entries: tuple[JsonObject, ...]
    fingerprint: str


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A whole session.

    Attributes:
        entries: All entries, from the first ancestor's on.
        fingerprint: What the engine made of the ledger's messages when it saved the session. Where the ledger now says
            something else (another engine took a turn, the conversation was compacted), the session is out of date.
    """

    entries: tuple[JsonObject, ...]
    fingerprint: str


class SessionStore(Protocol):
    """The sessions that one run may see and make."""

    async def load(self, session_id: str) -> StoredSession | None:
        """Return a session of the run's tenant, or None if there is none of this id.

        Raises:
            RunLost: The store was away until the run was no longer ours.
        """
        ...

    async def save(self, session: NewSession) -> None:
        """Keep a session. Saving the same one again changes nothing.

        Raises:
            RunLost: As above.
        """
        ...
