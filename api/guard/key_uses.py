"""When and from where keys were last used, written in the background: no request waits for it."""

import asyncio
from datetime import datetime

import structlog

from nova_workers.base.clock import Clock
from nova_workers.base.errors import NovaError
from nova_workers.domain.keys.sql.keys import KeyUse, note_uses
from nova_workers.ledger.database import Database
from nova_workers.ledger.visibility import all_tenants

_EVERY_S = 60.0
"""People ask whether a key is still in use, which needs no seconds. A crash loses the uses of this time."""
_LAST_S = 2.0
"""The time for the last write of a process that stops."""

_log = structlog.get_logger(__name__)


class KeyUses:
    """Notes each use of a key in memory, and writes the latest of each key once a minute."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._latest: dict[str, tuple[datetime, str | None]] = {}

    def note(self, key_id: str, address: str | None) -> None:
        """Note that a key is used now. An address is None for a Unix socket."""
        self._latest[key_id] = (self._clock.now(), address)

    async def run(self) -> None:
        """Write until canceled."""
        while True:
            await asyncio.sleep(_EVERY_S)
            try:
                await self.write()
            except NovaError as error:
                # The next round writes them.
                _log.warning("api.key_uses_not_written", error=str(error))

    async def close(self) -> None:
        """Write what was noted, for the last time: if that takes long or fails, it is lost."""
        try:
            async with asyncio.timeout(_LAST_S):
                await self.write()
        except (NovaError, TimeoutError) as error:
            _log.warning("api.key_uses_lost", keys=len(self._latest), error=str(error))

    async def write(self) -> None:
        """Write what was noted. Canceled or failed, it keeps that for the next write: writing a use twice is harmless.

        Raises:
            Unavailable: The database does not answer.
        """
        written = dict(self._latest)
        if not written:
            return
        uses = [KeyUse(key_id, at, address) for key_id, (at, address) in written.items()]
        # The keys of many tenants.
        with all_tenants():
            async with self._database.connection() as connection:
                await note_uses(connection, uses)
        self._latest = {key_id: use for key_id, use in self._latest.items() if written.get(key_id) != use}
