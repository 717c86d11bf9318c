"""The tick of orchestrations: repeats what a crash, or an end outside a worker, left undone in open trees.

It reports ends of runs that no worker reported (canceled in the queue), delivers messages, breaks deadlocks, and ends
trees whose time budget is spent or whose external master is idle. Each is guarded, so any number of ticks may run at
once.
"""

from __future__ import annotations

from datetime import timedelta

import structlog

from nova_workers.base.clock import Clock
from nova_workers.base.errors import Unavailable
from nova_workers.base.vocabulary import ACTIVE_AGENTS
from nova_workers.contracts.orchestration import MAX_SUMMARY_CHARS, AgentResult
from nova_workers.domain.orchestrations.rules.lifecycle import legal_sources
from nova_workers.domain.orchestrations.rules.routing import complete_agent, deliver, kill_branch, report_end
from nova_workers.domain.orchestrations.rules.unblocking import break_deadlocks
from nova_workers.domain.orchestrations.sql import activations, messages, open_trees
from nova_workers.domain.orchestrations.sql import agents as ledger
from nova_workers.domain.orchestrations.sql.changes import changed_now
from nova_workers.domain.orchestrations.sql.locking import LockedTree, skip_locked_trees
from nova_workers.ledger.work import UnitOfWork, Work

_log = structlog.get_logger(__name__)

_BATCH = 200


class OrchestrationTicker:
    """Sweeps open orchestrations. One object per process."""

    def __init__(self, work: Work, clock: Clock) -> None:
        self._work = work
        self._clock = clock

    async def tick(self) -> int:
        """Sweep every open orchestration, and return how many were changed.

        Raises:
            Unavailable: The database does not answer; the next tick finds the rest.
        """
        after, changed = "", 0
        while True:
            async with self._work.database.connection() as connection:
                found = await open_trees.list_open(connection, after=after, limit=_BATCH)
            for orchestration_id in found:
                changed += await self._sweep(orchestration_id)
            if len(found) < _BATCH:
                return changed
            after = found[-1]

    async def _sweep(self, orchestration_id: str) -> bool:
        try:
            async with self._work.begin() as tx:
                tree = await skip_locked_trees(tx.connection, orchestration_id)
                if tree is None:
                    return False
                reported = await self._report_ends(tx, tree)
                overdue = self._why_overdue(tree)
                if overdue is not None:
                    await self._end_overdue(tx, tree, overdue)
                else:
                    await break_deadlocks(tx, tree, await deliver(tx, tree))
                if not (reported or overdue or tx.is_followed):
                    return False
                tx.announce(await changed_now(tx.connection, orchestration_id))
                return True
        except Unavailable:
            raise
        except Exception:
            _log.exception("orchestration.not_swept", orchestration_id=orchestration_id)
            return False

    async def _report_ends(self, tx: UnitOfWork, tree: LockedTree) -> int:
        """Report agents whose run ended outside a worker: it was canceled, or its report was lost. Return how many."""
        rows = await messages.unreported(tx.connection, tree.id)
        for row in rows:
            succeeded, canceled = row["status"] == "succeeded", row["status"] == "canceled"
            state = "COMPLETED" if succeeded else "KILLED" if canceled else "FAILED"
            code = None if succeeded else "killed" if canceled else row["error_kind"] or "unknown"
            why = None if succeeded else row["error_message"] or f"Its run ended: {row['status']}."
            ended = await activations.end_activation(
                tx.connection,
                row["agent_id"],
                row["run_id"],
                state,
                ACTIVE_AGENTS if state == "KILLED" else legal_sources(state),
                summary=row["result_text"] or "",
                error_code=code,
                error_message=why,
            )
            if ended is not None and ended.moved:
                agent = ended.agent
                result = AgentResult(
                    agent.id,
                    success=succeeded,
                    summary=agent.summary or "",
                    artifacts=agent.artifacts,
                    error_code=code,
                    error=why,
                )
                await report_end(tx, tree, agent, result)
        return len(rows)

    def _why_overdue(self, tree: LockedTree) -> str | None:
        if self._is_late(tree):
            return "the time budget of the orchestration is spent"
        if self._is_idle(tree):
            return f"its external master sent no request for {tree.limits.master_idle_seconds:g} s"
        return None

    def _is_late(self, tree: LockedTree) -> bool:
        return tree.deadline_at is not None and tree.deadline_at <= self._clock.now()

    def _is_idle(self, tree: LockedTree) -> bool:
        """Return whether no request of the external master came for its time."""
        idle_s = timedelta(seconds=tree.limits.master_idle_seconds)
        return tree.master_seen_at is not None and tree.master_seen_at + idle_s <= self._clock.now()

    async def _end_overdue(self, tx: UnitOfWork, tree: LockedTree, why: str) -> None:
        """Kill a tree; but if an idle master has only to sum up, it is complete with what its children did."""
        agents = await ledger.agents_of(tx.connection, tree.tenant_id, tree.id)
        master, children = agents[0], agents[1:]
        may_sum_up = self._is_idle(tree) and not self._is_late(tree)
        if may_sum_up and children and all(child.state == "COMPLETED" for child in children):
            own = [child for child in children if child.parent_id == master.id]
            results = [f"{child.name}: {child.summary or ''}" for child in own]
            summary = "\n\n".join((f"All children are complete; {why}.", *results))
            await complete_agent(tx, tree, master, summary[:MAX_SUMMARY_CHARS], {})
            return
        await kill_branch(tx, tree, master, why=why)
