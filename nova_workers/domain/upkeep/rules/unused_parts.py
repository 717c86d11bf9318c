"""Deletes stored parts of requests to models that no model call of the ledger names any more."""

from __future__ import annotations

from typing import Final

from nova_workers.base.clock import Clock
from nova_workers.domain.runs.sql.requests import delete_unused
from nova_workers.ledger.database import Database

_ROWS: Final = 500
"""The parts of a batch: each is looked up in an index."""
_ROUND_S: Final = 3_600.0
"""The time from the end of a round over all parts to the next."""


class UnusedParts:
    """A duty of retention. Any number of instances may work at once, each in rounds of its own."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._after: tuple[str, str] | None = None
        self._next_round_s = 0.0

    async def step(self) -> bool:
        """Look at one batch, and return whether the round goes on."""
        if self._clock.monotonic_s() < self._next_round_s:
            return False
        async with self._database.connection() as connection:
            swept = await delete_unused(connection, self._after, limit=_ROWS)
        self._after = swept.after
        if swept.after is None:
            self._next_round_s = self._clock.monotonic_s() + _ROUND_S
        return swept.after is not None
