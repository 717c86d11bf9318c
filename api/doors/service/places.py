"""Places of conversations that clients name by their content alone."""

from __future__ import annotations

import structlog

from nova_workers.base.errors import Unavailable
from nova_workers.domain.threads.sql.places import find_place, note_place

from .request import DoorRequest

_log = structlog.get_logger(__name__)


class Places(DoorRequest):
    """What keeps and finds places."""

    __slots__ = ()

    async def note_place(self, digest: str, continued: str) -> None:
        """Keep what a conversation continues, for clients that send it whole and name it by nothing else.

        If that fails, the answer is sent all the same; the conversation is imported when it goes on.

        Args:
            digest: Of all that was said.
            continued: A name of the protocol's; `find_place` returns it.
        """
        try:
            async with self.state.services.database.connection() as connection:
                await note_place(connection, self.caller.tenant_id, digest, continued)
        except Unavailable as error:
            _log.warning("door.place_not_noted", continued=continued, error=str(error))

    async def find_place(self, digest: str) -> str | None:
        """Return the name of what a conversation continues; None if it is not known."""
        async with self.state.services.database.connection() as connection:
            return await find_place(connection, self.caller.tenant_id, digest)
