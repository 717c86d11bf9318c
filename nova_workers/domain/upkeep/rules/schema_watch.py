"""Whether this process can work on the schema of its database."""

from __future__ import annotations

import asyncio

import structlog

from nova_workers.base.errors import Unavailable
from nova_workers.ledger.database import Database
from nova_workers.ledger.schema import read_schema, schema_head

_log = structlog.get_logger(__name__)

_EVERY_S = 2.0
_DEADLINE_S = 2.0


class SchemaWatch:
    """Reads the schema at the start of a process, until it is one that the process can work on.

    A process that starts before `nova migrate` ended, or on a database of a much later release, reports that once in
    its log, and refuses work until the schema fits. Nothing is read afterwards: migrations keep what running processes
    of this release use.

    Attributes:
        head: The newest migration of this release.
        fits: Whether the schema is known to fit.
        problem: Why the process cannot work on it, and what to do; None if it fits, or could not be read yet.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.head = schema_head()
        self.fits = False
        self.problem: str | None = None

    def refuse_misfit(self) -> None:
        """Refuse work on a schema that does not fit.

        Raises:
            Unavailable: It does not fit. Without an answer of the database nothing is refused.
        """
        if self.problem is not None:
            raise Unavailable(f"{self.problem} Nothing was written.", server="postgres", may_be_written=False)

    async def run(self) -> None:
        """Look until the schema fits."""
        while not await self.look():  # noqa: ASYNC110 - another process migrates the database
            await asyncio.sleep(_EVERY_S)

    async def look(self) -> bool:
        """Look once, and return whether the schema fits. Logs what changed since the last look."""
        try:
            async with asyncio.timeout(_DEADLINE_S), self._database.connection() as connection:
                schema = await read_schema(connection)
        except (Unavailable, TimeoutError):
            # Other parts of the process report that, and wait.
            return self.fits
        problem = schema.problem(self.head)
        if problem is not None and problem != self.problem:
            _log.error("schema.does_not_fit", problem=problem, schema=schema.revision, needed=self.head)
        elif problem is None and self.problem is not None:
            _log.info("schema.fits", schema=schema.revision)
        if problem is None and schema.revision != self.head:
            _log.warning("schema.of_later_release", schema=schema.revision, this_release=self.head)
        self.problem = problem
        self.fits = problem is None
        return self.fits
