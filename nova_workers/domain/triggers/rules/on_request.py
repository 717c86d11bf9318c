"""Fires a trigger on request, regardless of its schedule."""

from __future__ import annotations

from collections.abc import Mapping

from nova_workers.base.errors import Conflict, Gone, LimitExceeded
from nova_workers.base.ids import new_id
from nova_workers.base.observability.metrics import Metrics
from nova_workers.contracts.http.triggers import TriggerFiringView
from nova_workers.contracts.runs import RequestKey
from nova_workers.domain.idempotency.sql import once
from nova_workers.domain.orchestrations.sql.spawning import NewTree
from nova_workers.domain.runs.sql.submit import find_accepted
from nova_workers.domain.triggers.rules.orchestrating import TreePlanner
from nova_workers.domain.triggers.rules.verdicts import day_began, limited, over_limit
from nova_workers.domain.triggers.sql import firing as ledger
from nova_workers.domain.triggers.sql.definitions import get_trigger
from nova_workers.domain.triggers.sql.due import DueTrigger, take_one
from nova_workers.domain.triggers.sql.firing import NewFiring
from nova_workers.domain.triggers.sql.outcomes import find_firing, get_firing, spent_since
from nova_workers.ledger.database import Connection
from nova_workers.ledger.in_doubt import doubtful, write_once
from nova_workers.ledger.work import UnitOfWork, Work


class TriggerFirer:
    """Fires a trigger on request."""

    def __init__(
        self,
        work: Work,
        metrics: Metrics,
        *,
        planner: TreePlanner,
    ) -> None:
        self._database = work.database
        self._work = work
        self._metrics = metrics
        self._planner = planner

    async def fire(
        self, tenant_id: str, trigger_id: str, *, request: RequestKey | None = None
    ) -> tuple[TriggerFiringView, bool]:
        """Fire a trigger now, due or not, enabled or not. Its schedule does not change.

        Args:
            tenant_id: Whose trigger.
            request: The request's idempotency key.

        Returns:
            The firing, and whether an earlier request with the key made it.

        Raises:
            IdempotencyMismatch: The key was used for another request.
            NotFound: There is no such trigger.
            Gone: It, its agent or its fixed thread was deleted.
            LimitExceeded: It has reached its daily limit of runs or cost.
            NovaError: Its orchestration cannot be started.
            Unavailable: The database does not answer. Where the reply to the commit was lost, it may have fired.
        """
        trees = await self._plan(tenant_id, trigger_id)
        firing_id, run_id = new_id("fir"), new_id("run")

        async def find_made(tx: UnitOfWork, made_id: str) -> TriggerFiringView:
            if made_id == firing_id:
                # This request's own, whose commit was in doubt.
                run = await find_accepted(tx.connection, tenant_id, run_id)
                tx.ring([] if run is None else [run.doorbell])
            return await get_firing(tx.connection, tenant_id, made_id)

        async def write() -> tuple[TriggerFiringView, bool]:
            async with self._work.begin() as tx:
                return await once(
                    tx.connection,
                    tenant_id,
                    request,
                    lambda: _fire(tx, tenant_id, trigger_id, trees, firing_id=firing_id, run_id=run_id),
                    lambda made_id: find_made(tx, made_id),
                    made_id=firing_id,
                )

        async def find() -> tuple[TriggerFiringView, bool] | None:
            async with self._work.begin_statement() as tx:
                view = await find_firing(tx.connection, tenant_id, firing_id)
                run = await find_accepted(tx.connection, tenant_id, run_id)
                tx.ring([] if view is None or run is None else [run.doorbell])
            return None if view is None else (view, False)

        view, is_replay = await write_once(
            write,
            find,
            doubt=lambda: doubtful(f"the firing of trigger {trigger_id!r}", request, firing_id=firing_id),
        )
        if not is_replay:
            self._metrics.trigger_firings.labels("fired", "").inc()
            self._metrics.runs_accepted.labels("background", "trigger").inc()
        return view, is_replay

    async def _plan(self, tenant_id: str, trigger_id: str) -> dict[str, NewTree]:
        """Return the orchestration that the trigger starts, if it starts one."""
        async with self._database.connection() as connection:
            trigger = await get_trigger(connection, tenant_id, trigger_id)
        if trigger.action == "run":
            return {}
        return {trigger_id: await self._planner.plan(tenant_id, trigger.agent_id, trigger.prompt)}


async def _fire(
    tx: UnitOfWork,
    tenant_id: str,
    trigger_id: str,
    trees: Mapping[str, NewTree],
    *,
    firing_id: str,
    run_id: str,
) -> TriggerFiringView:
    connection = tx.connection
    trigger = await take_one(connection, tenant_id, trigger_id)
    await _check_fires(connection, trigger)
    fixed, orchestrates = trigger.thread_id, trigger.action == "orchestrate"
    if orchestrates and trigger.id not in trees:
        raise Conflict(f"Trigger {trigger_id!r} was changed at the same moment. Try again.")
    firing = NewFiring(
        firing_id,
        trigger.id,
        trigger.now,
        "fired",
        run_id=run_id,
        thread_id=None if orchestrates else fixed or new_id("thr"),
        new_thread=fixed is None and not orchestrates,
        manual=True,
    )
    if not await ledger.insert_firings(tx, [firing], trees):
        raise Conflict(f"Trigger {trigger_id!r} fired at the same moment. Try again.", trigger_id=trigger_id)
    return await get_firing(connection, tenant_id, firing_id)


async def _check_fires(connection: Connection, trigger: DueTrigger) -> None:
    if not trigger.agent_lives:
        text = f"Agent {trigger.agent_id!r} of trigger {trigger.id!r} was deleted."
        raise Gone(text, kind="agent", id=trigger.agent_id)
    fixed = trigger.thread_id
    if fixed is not None and not await ledger.lock_threads(connection, [fixed]):
        text = f"Thread {fixed!r} of trigger {trigger.id!r} was deleted. Give it another."
        raise Gone(text, kind="thread", id=fixed)
    if limited([trigger]):
        spent = await spent_since(connection, [(trigger.id, day_began(trigger))])
        refusal = over_limit(trigger, spent.get(trigger.id))
        if refusal is not None:
            raise LimitExceeded(f"Trigger {trigger.id!r} does not fire: {refusal[1]}", limit=refusal[0])
