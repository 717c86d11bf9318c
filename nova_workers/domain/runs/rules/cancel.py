"""Cancels, withdraws, edits and retries runs, as people and programs request it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from nova_workers.base.errors import Conflict, IllegalTransition, InvalidInput, existing
from nova_workers.base.keys import run_events
from nova_workers.base.vocabulary import RetryRefusal
from nova_workers.contracts.content import ContentBlock
from nova_workers.contracts.http.wire import (
    MAX_BULK_CANCEL,
    BulkCancel,
    BulkCanceled,
    BulkRetried,
    BulkRetry,
    RunView,
)
from nova_workers.contracts.runs import CancelRequest
from nova_workers.domain.agents.sql.former_ids import refuse_former_id
from nova_workers.domain.runs.sql import cancel as ledger
from nova_workers.domain.runs.sql import retries
from nova_workers.domain.runs.sql.filters import RunFilter
from nova_workers.domain.runs.sql.reads import get_run
from nova_workers.domain.runs.sql.submit import lock_thread
from nova_workers.domain.threads.sql.records import delete_thread
from nova_workers.ledger.database import Connection
from nova_workers.ledger.work import Work

_log = structlog.get_logger(__name__)

_NOT_RETRIED: Mapping[RetryRefusal, str] = {
    "not_failed": "it has not failed",
    "thread_deleted": "its thread was deleted",
    "answered": "another run, an orchestration or a work order has its failure as an answer",
    "not_newest": "its thread has gone on since; send the message again",
    "forked": "a thread continues from its turn",
    "effects_open": "its end is still being delivered; try again in a moment",
}
_FILTERS = [name for name in BulkCancel.model_fields if name != "dry_run"]


class Canceller:
    """Cancels, withdraws and edits runs: commits the request to Postgres, then notifies workers for speed."""

    def __init__(self, work: Work) -> None:
        self._work = work

    async def cancel(self, tenant_id: str, run_id: str) -> RunView:
        """Cancel a run, and return it as the request left it. Repeating the request changes nothing.

        Raises:
            NotFound: No such run in this tenant.
            IllegalTransition: The run ended otherwise.
        """
        async with self._work.begin() as tx:
            requests = await ledger.request_cancel(tx.connection, tenant_id, [run_id])
            tx.cancel(requests)
            run = await get_run(tx.connection, tenant_id, run_id)
            if not requests and run.status != "canceled":
                raise IllegalTransition(
                    f"Run {run_id!r} has {run.status}; it can no longer be canceled.", status=run.status
                )
        return run

    async def cancel_many(self, tenant_id: str, which: BulkCancel) -> BulkCanceled:
        """Cancel all open runs that match, up to 1,000 a call; or only count them (`dry_run`).

        Raises:
            InvalidInput: No filter is given.
            AgentRenamed: The agent has another id now.
        """
        if not any(which.model_dump(exclude={"dry_run"}).values()):
            raise InvalidInput(
                f"Give at least one of {', '.join(_FILTERS)}: an empty filter would cancel every run.", field="body"
            )
        wanted = _filter(which)
        # By itself, so that the statement sees what was committed since the runs were selected.
        async with self._work.begin_statement() as tx:
            await refuse_former_id(tx.connection, tenant_id, which.agent_id)
            runs = await ledger.select_open(tx.connection, tenant_id, wanted, limit=MAX_BULK_CANCEL)
            if which.dry_run:
                unbegun = sum(run.unbegun for run in runs)
                return BulkCanceled(canceled=unbegun, requested=len(runs) - unbegun)
            requests = await ledger.request_cancel_of(tx.connection, tenant_id, runs, wanted)
            tx.cancel(requests)
        ended = sum(request.ended for request in requests)
        return BulkCanceled(canceled=ended, requested=len(requests) - ended)

    async def withdraw(self, tenant_id: str, run_id: str) -> None:
        """Remove a queued run from its queue.

        Raises:
            NotFound: No such run in this tenant.
            IllegalTransition: A worker has begun it; cancel it instead.
        """
        async with self._work.begin_statement() as tx:
            ended = await ledger.withdraw_queued(tx.connection, tenant_id, run_id)
            if not ended:
                await _refuse_past_queue(tx.connection, tenant_id, run_id, "withdrawn; cancel it instead")
            tx.cancel([CancelRequest(bell, ended=True, running=False) for bell in ended])

    async def delete_thread(self, tenant_id: str, thread_id: str) -> None:
        """Delete a thread, and cancel its open runs.

        Raises:
            NotFound: There is no such thread.
            Gone: It was deleted before.
        """
        async with self._work.begin() as tx:
            tx.cancel(await delete_thread(tx.connection, tenant_id, thread_id))

    async def delete_only_run(self, tenant_id: str, run_id: str) -> None:
        """Delete the thread of a run, if no other run is in it. The run is canceled if it is open.

        Raises:
            NotFound: No such run in this tenant.
            Gone: Its thread was deleted before.
            Conflict: Other runs are in the thread.
        """
        async with self._work.begin() as tx:
            run = await get_run(tx.connection, tenant_id, run_id)
            # No run is added to a locked thread.
            await lock_thread(tx.connection, tenant_id, run.thread_id)
            if await ledger.has_other_runs(tx.connection, run.thread_id, run_id):
                raise Conflict(
                    f"Run {run_id!r} is one of several in thread {run.thread_id!r}, and their history is one. Delete "
                    "the thread.",
                    thread_id=run.thread_id,
                )
            tx.cancel(await delete_thread(tx.connection, tenant_id, run.thread_id))

    async def edit(self, tenant_id: str, run_id: str, content: Sequence[ContentBlock]) -> RunView:
        """Replace the message of a queued run, and return the run.

        Raises:
            NotFound: No such run in this tenant.
            IllegalTransition: A worker has begun it.
        """
        async with self._work.begin() as tx:
            if not await ledger.edit_queued(tx.connection, tenant_id, run_id, content):
                await _refuse_past_queue(tx.connection, tenant_id, run_id, "edited; send another message instead")
            return await get_run(tx.connection, tenant_id, run_id)


class Retrier:
    """Queues failed runs again, as further attempts of the same runs."""

    def __init__(self, work: Work, redis: Redis) -> None:
        self._work = work
        self._redis = redis

    async def retry(self, tenant_id: str, run_id: str) -> RunView:
        """Queue a failed run again, and return it.

        Raises:
            NotFound: No such run in this tenant.
            IllegalTransition: It has not failed, or its failure cannot be taken back; the message says why.
        """
        async with self._work.begin() as tx:
            refusal = await retries.why_not_retried(tx.connection, tenant_id, run_id)
            if refusal is None:
                await self._forget_streams([run_id])
                bells = await retries.retry_failed(tx.connection, tenant_id, [run_id])
                tx.ring(bells)
                refusal = None if bells else "not_newest"
            run = await get_run(tx.connection, tenant_id, run_id)
            if refusal is not None:
                why = _NOT_RETRIED[refusal]
                raise IllegalTransition(f"Run {run_id!r} cannot be tried again: {why}.", status=run.status)
        return run

    async def retry_many(self, tenant_id: str, which: BulkRetry) -> BulkRetried:
        """Queue failed runs that match again, oldest first, up to 1,000 a call; or only count them (`dry_run`).

        Raises:
            InvalidInput: No filter is given.
            AgentRenamed: The agent has another id now.
        """
        fields = which.model_dump(exclude={"dry_run", "error_kind", "after"})
        if not any((*fields.values(), which.error_kind)):
            raise InvalidInput("Give at least one field: an empty filter would retry every failed run.", field="body")
        wanted = RunFilter(**fields, statuses=frozenset({"failed"}))
        async with self._work.begin_statement() as tx:
            await refuse_former_id(tx.connection, tenant_id, which.agent_id)
            found = await retries.find_failed(
                tx.connection,
                tenant_id,
                wanted,
                error_kind=which.error_kind,
                after=which.after,
                limit=MAX_BULK_CANCEL,
            )
            fit = [run_id for run_id, refusal in found if refusal is None]
            skipped = Counter[RetryRefusal](refusal for _, refusal in found if refusal is not None)
            after = found[-1][0] if len(found) == MAX_BULK_CANCEL else None
            if which.dry_run or not fit:
                return BulkRetried(retried=len(fit), skipped=dict(skipped), next_after=after)
            await self._forget_streams(fit)
            bells = await retries.retry_failed(tx.connection, tenant_id, fit)
            tx.ring(bells)
        if len(bells) < len(fit):
            skipped["not_newest"] += len(fit) - len(bells)
        return BulkRetried(retried=len(bells), skipped=dict(skipped), next_after=after)

    async def _forget_streams(self, run_ids: Sequence[str]) -> None:
        """Delete live events, whose last one says that the run has ended. The ledger has what is committed."""
        try:
            await self._redis.unlink(*map(run_events, run_ids))
        except RedisError as error:
            _log.warning("retry.stream_not_deleted", runs=len(run_ids), error=str(error))


async def _refuse_past_queue(connection: Connection, tenant_id: str, run_id: str, verb: str) -> None:
    status = existing(await ledger.run_status(connection, tenant_id, run_id), "run", run_id)
    raise IllegalTransition(f"Run {run_id!r} is no longer queued ({status}); it cannot be {verb}.", status=status)


def _filter(which: BulkCancel) -> RunFilter:
    statuses = (which.status,) if isinstance(which.status, str) else which.status or ()
    fields = which.model_dump(exclude={"dry_run", "status"})
    return RunFilter(**fields, statuses=frozenset(statuses))
