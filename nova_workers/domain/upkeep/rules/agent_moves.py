"""Moves the rows of renamed agents to their new ids: at once in the process that renames, and by ticks of upkeep.

A tick continues where another process stopped. It also checks completed renames again, since a transaction that
began before one may have written the former id after it.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from nova_workers.base.errors import Unavailable
from nova_workers.base.stopping import stop_tasks
from nova_workers.domain.agents.sql import moves as ledger
from nova_workers.domain.agents.sql.renames import Rename, find_renames, is_moving
from nova_workers.domain.runs.sql.fleet import Switch, first_queued_runs
from nova_workers.ledger.work import Work

_THREADS: Final = 50
_ROWS: Final = 500
_USAGE_ROWS: Final = 10_000
"""That one step of a walk looks at."""

_PAUSE_S: Final = 0.5
_OWN_WAIT_S: Final = 300.0
"""How long the process that renames waits for threads that it cannot move yet. Then ticks of upkeep continue."""

_log = structlog.get_logger(__name__)


class AgentMoves:
    """Moves rows of renamed agents. Any number of processes may move those of one agent."""

    def __init__(self, work: Work) -> None:
        """Keep what rings for runs that were queued meanwhile."""
        self._work = work
        self._moving: dict[Rename, asyncio.Task[None]] = {}

    async def start(self, rename: Rename, *, patience_s: float) -> bool:
        """Move an agent's rows in the background, and wait for the end for a while.

        Returns:
            Whether all have moved. If this process ends before, ticks of upkeep continue.
        """
        task = self._moving.get(rename)
        if task is None:
            task = self._moving[rename] = asyncio.create_task(self._move(rename))
            task.add_done_callback(lambda _: self._moving.pop(rename, None))
        await asyncio.wait({task}, timeout=patience_s)
        async with self._work.database.connection() as connection:
            return not await is_moving(connection, rename.tenant_id, rename.to_id)

    async def close(self) -> None:
        """Stop moving."""
        await stop_tasks(list(self._moving.values()))

    async def step(self) -> bool:
        """Do one batch for each former id that has rows. Returns whether the next step has work now.

        Raises:
            Unavailable: The database cannot be reached.
        """
        async with self._work.database.connection() as connection:
            renames = await find_renames(connection)
        return any([await self._batch(rename) for rename in renames])

    async def _move(self, rename: Rename) -> None:
        pauses_left = round(_OWN_WAIT_S / _PAUSE_S)
        try:
            while pauses_left:
                if await self._batch(rename):
                    continue
                async with self._work.database.connection() as connection:
                    if not await is_moving(connection, rename.tenant_id, rename.to_id):
                        return
                pauses_left -= 1
                await asyncio.sleep(_PAUSE_S)
        except Unavailable as error:
            _log.warning("agent.move_left_to_upkeep", agent_id=rename.to_id, why=str(error))
        except Exception:
            _log.exception("agent.not_moved", tenant_id=rename.tenant_id, agent_id=rename.to_id)

    async def _batch(self, rename: Rename) -> bool:
        """Move some rows, threads first. False where nothing is left, or all that is left is in use."""
        async with self._work.database.transaction() as connection:
            if await ledger.move_threads(connection, rename, threads=_THREADS, rows=_ROWS):
                return True
            if await ledger.threads_left(connection, rename):
                return False
        for column in ledger.SWEPT if rename.moving else ledger.LATE:
            async with self._work.database.connection() as connection:
                if await ledger.sweep(connection, rename, column, rows=_ROWS):
                    return True
        if rename.moving:
            await self._finish(rename)
        return False

    async def _finish(self, rename: Rename) -> None:
        passed = None
        while True:
            async with self._work.database.connection() as connection:
                passed = await ledger.sweep_usage(connection, rename, passed, rows=_USAGE_ROWS)
            if passed is None:
                break
        async with self._work.begin_statement() as tx:
            if not await ledger.finish_move(tx.connection, rename):
                return
            tx.ring(await first_queued_runs(tx.connection, Switch("agent", rename.tenant_id, rename.to_id)))
        _log.info("agent.renamed", tenant_id=rename.tenant_id, former_id=rename.from_id, agent_id=rename.to_id)
