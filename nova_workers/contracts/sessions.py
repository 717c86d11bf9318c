"""Storage for the transcripts that an engine's SDK keeps, so that any worker can resume any session.

Above the seam: `runs` binds a store to one run, and with it to one tenant and thread. Below it: engines. Only the SDK
interprets entries; a store keeps them unchanged.

The ledger is the source of truth for a conversation. A session keeps only what the SDK knows in addition, so an engine
must work without it: a session that is missing, or that differs from the ledger, is not resumed.
"""

from dataclasses import dataclass
from typing import Protocol

from nova_workers.contracts.content import JsonObject


@dataclass(frozen=True, slots=True)
class NewSession:
    """The session after one turn: its parent session, and the entries that the turn added.

    Attributes:
        id: New in each turn. So a thread that returns to an older turn finds the session of that turn, and two workers
            that both believe they own a run do not overwrite each other's session.
        parent_id: The previous session; None if `entries` are complete.
        entries: The added entries, in order.
        fingerprint: Fingerprint of the conversation in the session; see `StoredSession`.
    """

    id: str
    parent_id: str | None
    entries: tuple[JsonObject, ...]
    fingerprint: str


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A complete session.

    Attributes:
        entries: All entries, from the first ancestor's on.
        fingerprint: The engine's fingerprint of the ledger's messages when it saved the session. If the messages differ
            now (another engine took a turn, the conversation was compacted), the session is out of date.
    """

    entries: tuple[JsonObject, ...]
    fingerprint: str


class SessionStore(Protocol):
    """The sessions that one run may read and write."""

    async def load(self, session_id: str) -> StoredSession | None:
        """Return a session of the run's tenant, or None if there is none with this id.

        Raises:
            RunLost: The store was unavailable until another worker could own the run.
        """
        ...

    async def save(self, session: NewSession) -> None:
        """Store a session. Saving it again changes nothing.

        Raises:
            RunLost: As above.
        """
        ...
