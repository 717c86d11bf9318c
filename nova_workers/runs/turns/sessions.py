"""The SDK sessions that a run may read and write."""

from __future__ import annotations

from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.runs import Claim
from nova_workers.contracts.sessions import NewSession, StoredSession
from nova_workers.ledger.database import Database
from nova_workers.ledger.runs.sessions import load_session, save_session
from nova_workers.runs.persist import persist

__all__ = ["RunSessions"]


class RunSessions:
    """Implements `SessionStore` for a run: reads sessions of its tenant, writes those of its thread.

    A write needs no fence: a new session is referenced only by the end of the run, which is fenced.
    """

    def __init__(self, database: Database, claim: Claim, engine: str, abort: AbortSignal) -> None:
        self._database = database
        self._claim = claim
        self._engine = engine
        self._abort = abort

    async def load(self, session_id: str) -> StoredSession | None:
        """Return a session. See `nova_workers.contracts.sessions.SessionStore`."""
        claim = self._claim
        return await persist(
            self._database,
            self._abort,
            lambda connection: load_session(connection, claim.tenant_id, self._engine, session_id),
        )

    async def save(self, session: NewSession) -> None:
        """Save a session. See `nova_workers.contracts.sessions.SessionStore`."""
        claim = self._claim
        await persist(
            self._database,
            self._abort,
            lambda connection: save_session(connection, claim.tenant_id, claim.thread_id, self._engine, session),
        )
