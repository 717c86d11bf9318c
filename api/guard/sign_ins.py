"""Whether the session that a request names goes on: that of a person who signed in."""

from collections import OrderedDict

from starlette.types import Scope

from nova_workers.base.clock import Clock
from nova_workers.base.errors import Unauthenticated
from nova_workers.domain.keys.sql.sign_ins import use_sign_in
from nova_workers.ledger.database import Database

from ..auth import Caller
from ..boundary import header_of

_HEADER = b"nova-session"
_MAX_ID_CHARS = 64
_MAX_SESSIONS = 10_000


class SignIns:
    """Looks sessions up, and caches those that go on for `cache_s`, the longest time that an ended one still works.

    A short session is cached for less: it is used, and ends if that is not noted in time.
    """

    def __init__(self, database: Database, clock: Clock, *, cache_s: float) -> None:
        self._database = database
        self._clock = clock
        self._cache_s = cache_s
        self._known: OrderedDict[tuple[str, str], float] = OrderedDict()

    async def check(self, scope: Scope, caller: Caller) -> None:
        """Refuse a request that names a session which has ended. Most name none: programs have keys only.

        Raises:
            Unauthenticated: It was ended, was idle for too long, or is of another key.
            Unavailable: It is not cached, and the database does not answer.
        """
        named = header_of(scope, _HEADER)
        if not named:
            return
        session = caller.key_id, named.decode("latin-1")
        now_s = self._clock.monotonic_s()
        if self._known.get(session, 0.0) > now_s:
            return
        noted_s: float | None = None
        if len(session[1]) <= _MAX_ID_CHARS:
            async with self._database.connection() as connection:
                noted_s = await use_sign_in(connection, caller.tenant_id, *session)
        if noted_s is None:
            self._known.pop(session, None)
            raise Unauthenticated("The session was ended, or was idle for too long. Sign in again.")
        self._known[session] = now_s + min(self._cache_s, noted_s)
        self._known.move_to_end(session)
        if len(self._known) > _MAX_SESSIONS:
            self._known.popitem(last=False)

    def forget(self, key_id: str, session_id: str) -> None:
        """Remove a session: it was ended here."""
        self._known.pop((key_id, session_id), None)
