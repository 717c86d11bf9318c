"""Moves a run that does not move by itself, as a person asks."""

from __future__ import annotations

import structlog
from redis.exceptions import RedisError

from nova_workers.base.errors import IllegalTransition, missing
from nova_workers.contracts.http.wire import RunView
from nova_workers.contracts.runs import Doorbell
from nova_workers.domain.audit.sql.listing import record_act
from nova_workers.domain.runs.rules.waiting import Waiting
from nova_workers.domain.runs.sql import moves as ledger
from nova_workers.domain.runs.sql.moves import MoveState
from nova_workers.domain.runs.sql.reads import get_run
from nova_workers.domain.threads.rules.lock import ThreadLocks
from nova_workers.ledger.database import Connection
from nova_workers.ledger.work import Work

_log = structlog.get_logger(__name__)


class Mover:
    """Rings for runs, takes them back from lost workers, and ends them as failed. None changes a live lease.

    Each act is in the audit log, by the transaction that does it.
    """

    def __init__(self, work: Work, locks: ThreadLocks, waiting: Waiting) -> None:
        self._work = work
        self._locks = locks
        self._waiting = waiting

    async def kick(self, tenant_id: str, run_id: str) -> RunView:
        """Look after a run now, as the reconciler would in its time, and return it.

        A queued one gets a doorbell, and a lock that no run of its conversation holds is removed; a held one tries its
        provider at once; of a waiting one, what is due or answered ends.

        Raises:
            NotFound: There is no such run.
            IllegalTransition: It runs, starts later, or has ended: there is nothing to do.
        """
        state = await self._state(tenant_id, run_id)
        if state.status == "waiting":
            await self._waiting.sweep(thorough=True)
        elif state.status != "queued":
            raise _refused(run_id, state, "kicked")
        async with self._work.begin() as tx:
            rung = await ledger.ring_again(tx.connection, tenant_id, run_id)
            await record_act(tx.connection, "run.kicked", "run", run_id, {})
            run = await get_run(tx.connection, tenant_id, run_id)
        if rung is not None:
            bell, is_free = rung
            await self._ring(bell, removes_lock=is_free)
        return run

    async def requeue(self, tenant_id: str, run_id: str) -> RunView:
        """Take a running run back from a worker whose lease has expired, and return it. It counts as a lost worker.

        Raises:
            NotFound: There is no such run.
            IllegalTransition: It does not run, or its lease is live.
        """
        async with self._work.begin() as tx:
            bell = await ledger.take_back(tx.connection, tenant_id, run_id)
            if bell is None:
                raise _refused(run_id, await self._read(tx.connection, tenant_id, run_id), "requeued")
            await record_act(tx.connection, "run.requeued", "run", run_id, {})
            run = await get_run(tx.connection, tenant_id, run_id)
        await self._ring(bell, removes_lock=True)
        return run

    async def fail(self, tenant_id: str, run_id: str, reason: str) -> RunView:
        """Let a run that had begun, and that no worker holds, end as failed; return it. What waits for it goes on.

        The next worker that claims it writes its end, with what the turn had so far.

        Raises:
            NotFound: There is no such run.
            IllegalTransition: It never began, its lease is live, its end was asked for, or it has ended.
        """
        async with self._work.begin() as tx:
            await ledger.take_back(tx.connection, tenant_id, run_id)
            request = await ledger.request_failure(tx.connection, tenant_id, run_id, reason)
            if request is None:
                raise _refused(run_id, await self._read(tx.connection, tenant_id, run_id), "failed")
            await record_act(tx.connection, "run.failed", "run", run_id, {"reason": reason})
            tx.cancel([request])
            return await get_run(tx.connection, tenant_id, run_id)

    async def _state(self, tenant_id: str, run_id: str) -> MoveState:
        async with self._work.database.connection() as connection:
            return await self._read(connection, tenant_id, run_id)

    async def _read(self, connection: Connection, tenant_id: str, run_id: str) -> MoveState:
        state = await ledger.read_move_state(connection, tenant_id, run_id)
        if state is None:
            raise missing("run", run_id)
        return state

    async def _ring(self, bell: Doorbell, *, removes_lock: bool) -> None:
        """Ring after the commit, and first remove a lock at which the doorbell would end.

        A worker that is about to claim loses its lock as well; the claim's guard admits one.
        """
        if removes_lock:
            try:
                await self._locks.remove([bell.thread_id])
            except RedisError as error:
                _log.warning("lock.not_removed", threads=1, error=str(error))
        self._work.ring([bell])


def _refused(run_id: str, state: MoveState, verb: str) -> IllegalTransition:
    return IllegalTransition(f"Run {run_id!r} cannot be {verb}: {_why(state, verb)}", status=state.status)


def _why(state: MoveState, verb: str) -> str:
    match state:
        case MoveState(leased=True):
            return f"worker {state.worker_id} holds it under a live lease. Cancel it, or wait until the lease expires."
        case MoveState(status="running"):
            return "its lease has expired, and another process takes it back at this moment. Look again."
        case MoveState(status="queued" | "waiting", ends=True):
            return "its end was asked for already; the next worker that claims it ends it."
        case MoveState(status="queued") if verb == "requeued":
            return "it is queued already. Kick it to ring for it."
        case MoveState(status="queued" | "scheduled", begun=False):
            return "no worker has begun it. Cancel it, or withdraw it."
        case _:
            return f"it is {state.status}."
