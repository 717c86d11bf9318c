"""Fires triggers. Ticks may overlap, repeat or fail; each occurrence fires once.

The database's clock decides what is due. A batch of due triggers is one transaction: the outcomes of their
occurrences, the runs, and when they are due next. Doorbells ring after the commit; if the process crashes before, the
reconciler rings them. A gate is evaluated between two transactions: the first postpones the trigger, the second takes
it again unless another process has moved it. After a crash in between, it is due again when the postponement ends.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import structlog

from nova_workers.base.config import TriggerSettings
from nova_workers.base.errors import Unavailable
from nova_workers.base.ids import new_id
from nova_workers.base.observability.metrics import Metrics
from nova_workers.contracts.deliveries import INBOX, NewDelivery
from nova_workers.contracts.runs import CancelRequest
from nova_workers.domain.delivery.sql.outbox import add_deliveries
from nova_workers.domain.runs.sql.cancel import request_cancel
from nova_workers.domain.triggers.rules.gates import Gates
from nova_workers.domain.triggers.rules.occurrences import Occurrences
from nova_workers.domain.triggers.rules.orchestrating import Plans, TreePlanner, plan_all
from nova_workers.domain.triggers.rules.verdicts import (
    GateAnswer,
    Known,
    Verdict,
    day_began,
    limited,
    verdict_on,
    verdict_on_queued,
)
from nova_workers.domain.triggers.sql import firing as ledger
from nova_workers.domain.triggers.sql.due import DueTrigger, find_orchestrating, take_again, take_due, take_queued
from nova_workers.domain.triggers.sql.firing import NewFiring
from nova_workers.domain.triggers.sql.outcomes import settle, spent_since
from nova_workers.ledger.database import Connection
from nova_workers.ledger.work import UnitOfWork, Work

_log = structlog.get_logger(__name__)

_MOST_GATES = 500
"""Gates evaluated in one tick; the next tick takes the rest."""
_MOST_ENDED = 2_000


@dataclass(slots=True)
class Ticked:
    """What a tick did."""

    fired: int = 0
    skipped: int = 0
    paused: int = 0


@dataclass(slots=True)
class _Batch:
    """What one transaction did."""

    taken: int = 0
    firings: list[NewFiring] = field(default_factory=list[NewFiring])
    fired: int = 0
    asking: list[tuple[DueTrigger, Verdict]] = field(default_factory=list[tuple[DueTrigger, Verdict]])


class TriggerTicker:
    """Fires what is due."""

    def __init__(
        self,
        work: Work,
        settings: TriggerSettings,
        metrics: Metrics,
        *,
        gates: Gates,
        planner: TreePlanner,
    ) -> None:
        self._database = work.database
        self._work = work
        self._settings = settings
        self._metrics = metrics
        self._gates = gates
        self._planner = planner
        self._occurrences = Occurrences()

    async def tick(self) -> Ticked:
        """Count ended runs, begin queued occurrences that may begin, then fire all that is due.

        Raises:
            Unavailable: The database does not answer; the next tick does the work.
        """
        began_s = time.monotonic()
        ticked = Ticked(paused=await self._settle())
        plans = await self._plans()
        self._count(await self._begin_queued(self._settings.batch, plans), ticked)
        asking: list[tuple[DueTrigger, Verdict]] = []
        while len(asking) < _MOST_GATES:
            batch = await self._fire_due(self._settings.batch, plans)
            asking += batch.asking
            self._count(batch, ticked)
            if batch.taken < self._settings.batch:
                break
        if asking:
            self._count(await self._fire_gated(asking, plans), ticked)
        self._metrics.trigger_tick_s.observe(time.monotonic() - began_s)
        return ticked

    async def _settle(self) -> int:
        async with self._database.transaction() as connection:
            paused = [row for row in await settle(connection, limit=_MOST_ENDED) if row["newly_paused"]]
            await add_deliveries(
                connection,
                [_notice(row["tenant_id"], row["agent_id"], row["id"], row["paused_reason"]) for row in paused],
            )
        for row in paused:
            _log.warning(
                "trigger.paused", tenant_id=row["tenant_id"], trigger_id=row["id"], reason=row["paused_reason"]
            )
        return len(paused)

    async def _plans(self) -> Plans:
        """Plan the orchestrations that this tick may start. A trigger that comes due meanwhile is left to the next."""
        async with self._database.connection() as connection:
            found = await find_orchestrating(connection, limit=self._settings.batch)
        return await plan_all(self._planner, found)

    async def _begin_queued(self, limit: int, plans: Plans) -> _Batch:
        """Begin the oldest queued occurrence of each trigger without an open run; the next tick begins the rest."""
        async with self._work.begin() as tx:
            connection = tx.connection
            taken = await take_queued(connection, planned=plans.triggers, limit=limit)
            batch = _Batch(taken=len(taken))
            known = await self._look_up(connection, [trigger for trigger, _ in taken], {}, plans)
            for trigger, occurrence in taken:
                verdict = verdict_on_queued(trigger, known[trigger.id], occurrence)
                if verdict.skips_all is not None:
                    await ledger.skip_queued(connection, trigger.id, *verdict.skips_all)
                if verdict.firing is not None:
                    batch.firings.append(verdict.firing)
            if batch.firings:
                batch.fired = await ledger.begin_queued(tx, batch.firings, plans.trees)
        return batch

    async def _fire_due(self, limit: int, plans: Plans) -> _Batch:
        taken: list[DueTrigger] = []
        try:
            async with self._work.begin() as tx:
                taken += await take_due(tx.connection, planned=plans.triggers, limit=limit)
                return await self._decide(tx, taken, {}, plans)
        except Unavailable:
            raise
        except Exception:
            if len(taken) != 1:
                _log.exception("trigger.batch_failed", count=len(taken))
                return await self._fire_one_by_one(len(taken), plans)
            _log.exception("trigger.failed", tenant_id=taken[0].tenant_id, trigger_id=taken[0].id)
            async with self._database.connection() as connection:
                await ledger.postpone(connection, taken[0].id)
            return _Batch(taken=1)

    async def _fire_one_by_one(self, count: int, plans: Plans) -> _Batch:
        """Retry a failed batch one by one, so that one bad trigger does not block the others."""
        whole = _Batch(taken=count)
        for _ in range(count):
            each = await self._fire_due(1, plans)
            if not each.taken:
                break
            whole.firings += each.firings
            whole.fired += each.fired
            whole.asking += each.asking
        return whole

    async def _fire_gated(self, asking: Sequence[tuple[DueTrigger, Verdict]], plans: Plans) -> _Batch:
        answers = await self._gates.ask([trigger for trigger, _ in asking])
        leases = [
            (verdict.move.trigger_id, verdict.move.next_fire_at)
            for _, verdict in asking
            if verdict.move.next_fire_at is not None
        ]
        async with self._work.begin() as tx:
            return await self._decide(tx, await take_again(tx.connection, leases), answers, plans)

    async def _decide(
        self, tx: UnitOfWork, triggers: Sequence[DueTrigger], answers: Mapping[str, GateAnswer], plans: Plans
    ) -> _Batch:
        """Decide on locked triggers and write the results."""
        connection, batch = tx.connection, _Batch(taken=len(triggers))
        if not triggers:
            return batch
        known = await self._look_up(connection, triggers, answers, plans)
        # A cron line takes 0.2 ms: not on the event loop.
        verdicts = await asyncio.to_thread(
            lambda: [verdict_on(trigger, known[trigger.id], self._occurrences) for trigger in triggers]
        )
        batch.firings = [firing for verdict in verdicts for firing in verdict.firings]
        if batch.firings:
            batch.fired = await ledger.insert_firings(tx, batch.firings, plans.trees)
        tx.cancel(await _cancel(connection, triggers, verdicts))
        await ledger.move_triggers(connection, [verdict.move for verdict in verdicts])
        await add_deliveries(
            connection,
            [
                _notice(trigger.tenant_id, trigger.agent_id, trigger.id, verdict.move.paused_reason)
                for trigger, verdict in zip(triggers, verdicts, strict=True)
                if verdict.move.paused_reason is not None
            ],
        )
        batch.asking = [pair for pair in zip(triggers, verdicts, strict=True) if pair[1].asks_gate]
        return batch

    async def _look_up(
        self, connection: Connection, triggers: Sequence[DueTrigger], answers: Mapping[str, GateAnswer], plans: Plans
    ) -> dict[str, Known]:
        fixed = [trigger.thread_id for trigger in triggers if trigger.thread_id is not None]
        living = await ledger.lock_threads(connection, fixed) if fixed else frozenset[str]()
        since = [(trigger.id, day_began(trigger)) for trigger in limited(triggers)]
        spent = await spent_since(connection, since) if since else {}
        return {
            trigger.id: Known(
                thread_lives=trigger.thread_id is None or trigger.thread_id in living,
                spent=spent.get(trigger.id),
                gate=answers.get(trigger.id),
                refused=plans.refused.get(trigger.id),
            )
            for trigger in triggers
        }

    def _count(self, batch: _Batch, ticked: Ticked) -> None:
        """Count what a committed batch did."""
        ticked.fired += batch.fired
        if batch.fired:
            self._metrics.trigger_firings.labels("fired", "").inc(batch.fired)
            self._metrics.runs_accepted.labels("background", "trigger").inc(batch.fired)
        for firing in batch.firings:
            if firing.skip_reason is not None:
                ticked.skipped += 1
                self._metrics.trigger_firings.labels("skipped", firing.skip_reason).inc()
                _log.info(
                    "trigger.skipped", trigger_id=firing.trigger_id, reason=firing.skip_reason, detail=firing.detail
                )


async def _cancel(
    connection: Connection, triggers: Sequence[DueTrigger], verdicts: Sequence[Verdict]
) -> list[CancelRequest]:
    """Request the cancellation of replaced runs, in the transaction that writes their replacements."""
    pairs = sorted(
        (trigger.tenant_id, run_id)
        for trigger, verdict in zip(triggers, verdicts, strict=True)
        for run_id in verdict.cancels
    )
    requests: list[CancelRequest] = []
    for tenant_id, group in groupby(pairs, key=lambda pair: pair[0]):
        requests += await request_cancel(connection, tenant_id, [run_id for _, run_id in group])
    return requests


def _notice(tenant_id: str, agent_id: str, trigger_id: str, reason: str) -> NewDelivery:
    """Return the inbox notification for a paused trigger."""
    text = (
        f"Trigger {trigger_id} of agent {agent_id} is paused: {reason.rstrip('.')}. Fix the cause, then resume it "
        f"with `nova triggers resume {trigger_id}`."
    )
    payload = {"text": text, "trigger_id": trigger_id}
    return NewDelivery(new_id("dlv"), tenant_id, "notification", INBOX, payload, agent_id=agent_id)
