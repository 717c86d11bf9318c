"""Fires a trigger on request, regardless of its schedule."""

from __future__ import annotations

from nova_workers.contracts.http.triggers import TriggerFiringView
from nova_workers.contracts.ports import Dispatcher
from nova_workers.errors import Conflict, Gone, LimitExceeded
from nova_workers.ids import new_id
from nova_workers.ledger.database import Connection, Database
from nova_workers.ledger.triggers import firing as ledger
from nova_workers.ledger.triggers.due import DueTrigger, take_one
from nova_workers.ledger.triggers.firing import NewFiring
from nova_workers.ledger.triggers.outcomes import get_firing, spent_since
from nova_workers.observability.metrics import Metrics
from nova_workers.triggers.verdicts import day_began, limited, over_limit

__all__ = ["TriggerFirer"]


class TriggerFirer:
    """Fires a trigger on request."""

    def __init__(self, database: Database, dispatcher: Dispatcher, metrics: Metrics) -> None:
        self._database = database
        self._dispatcher = dispatcher
        self._metrics = metrics

    async def fire(self, tenant_id: str, trigger_id: str) -> TriggerFiringView:
        """Fire a trigger now, due or not, enabled or not. Its schedule does not change.

        Raises:
            NotFound: There is no such trigger.
            Gone: It, its agent or its fixed thread was deleted.
            LimitExceeded: It has reached its daily limit of runs or cost.
            Unavailable: The database does not answer. Where the reply to the commit was lost, it may have fired.
        """
        async with self._database.transaction() as connection:
            trigger = await take_one(connection, tenant_id, trigger_id)
            await _check_fires(connection, trigger)
            fixed = trigger.thread_id
            firing = NewFiring(
                new_id("fir"),
                trigger.id,
                trigger.now,
                "fired",
                run_id=new_id("run"),
                thread_id=fixed or new_id("thr"),
                new_thread=fixed is None,
                manual=True,
            )
            bells = await ledger.insert_firings(connection, [firing])
            if not bells:
                raise Conflict(f"Trigger {trigger_id!r} fired at the same moment. Try again.", trigger_id=trigger_id)
            view = await get_firing(connection, tenant_id, firing.id)
        self._dispatcher.ring_runs(bells)
        self._metrics.trigger_firings.labels("fired", "").inc()
        self._metrics.runs_accepted.labels("background", "trigger").inc()
        return view


async def _check_fires(connection: Connection, trigger: DueTrigger) -> None:
    if not trigger.agent_lives:
        raise Gone(f"Agent {trigger.agent_id!r} of trigger {trigger.id!r} was deleted.", agent_id=trigger.agent_id)
    fixed = trigger.thread_id
    if fixed is not None and not await ledger.lock_threads(connection, [fixed]):
        raise Gone(f"Thread {fixed!r} of trigger {trigger.id!r} was deleted. Give it another.", thread_id=fixed)
    if limited([trigger]):
        spent = await spent_since(connection, [(trigger.id, day_began(trigger))])
        refusal = over_limit(trigger, spent.get(trigger.id))
        if refusal is not None:
            raise LimitExceeded(f"Trigger {trigger.id!r} does not fire: {refusal[1]}", limit=refusal[0])
