"""Triggers on a harness: created as by the API, and with time that a test moves."""

from __future__ import annotations

from typing import Any

from nova_workers.base.outbound.requests import Outbound
from nova_workers.base.outbound.rules import OutboundRules
from nova_workers.bootstrap.orchestrations import build_starter
from nova_workers.contracts.http.triggers import TriggerCreate, TriggerPatch, TriggerView
from nova_workers.domain.triggers.rules import definitions as workspace
from nova_workers.domain.triggers.rules.firing import Ticked, TriggerTicker
from nova_workers.domain.triggers.rules.gates import Gates
from nova_workers.domain.triggers.rules.on_request import TriggerFirer
from nova_workers.domain.triggers.sql.definitions import get_trigger
from nova_workers.ledger.database import Row
from nova_workers.ledger.work import Work
from tests.support.harness.fault_injection import FaultInjectingDatabase, FaultInjector
from tests.support.harness.workers import AGENT, Harness

_PASS_TIME = (
    """
    UPDATE triggers
       SET created_at = created_at - :seconds::float8 * interval '1 second',
           starts_at = starts_at - :seconds::float8 * interval '1 second',
           ends_at = ends_at - :seconds::float8 * interval '1 second',
           next_slot_at = next_slot_at - :seconds::float8 * interval '1 second',
           next_fire_at = next_fire_at - :seconds::float8 * interval '1 second',
           schedule = CASE WHEN kind = 'at'
                           THEN to_char((schedule::timestamptz - :seconds::float8 * interval '1 second')
                                            AT TIME ZONE 'UTC',
                                        'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
                           ELSE schedule END
     WHERE :trigger_id::text IS NULL OR id = :trigger_id
    """,
    # Via another century, because no two rows of a trigger may have the same occurrence meanwhile.
    """
    UPDATE trigger_firings SET scheduled_for = scheduled_for - interval '100 years'
     WHERE :seconds::float8 IS NOT NULL AND (:trigger_id::text IS NULL OR trigger_id = :trigger_id)
    """,
    """
    UPDATE trigger_firings
       SET scheduled_for = scheduled_for + interval '100 years' - :seconds::float8 * interval '1 second'
     WHERE :trigger_id::text IS NULL OR trigger_id = :trigger_id
    """,
)


class TriggerHarness:
    """Creates triggers, moves time, ticks."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.database = harness.database
        self._planner = build_starter(harness.work, harness.models, harness.settings)
        self.firer = TriggerFirer(harness.work, harness.metrics, planner=self._planner)
        self._ticker = self.ticker()

    def ticker(self, faults: FaultInjector | None = None, **settings: Any) -> TriggerTicker:
        """Return a ticker of its own, behind a fault injector if one is given."""
        harness = self.harness
        database = harness.database if faults is None else FaultInjectingDatabase(harness.database, faults)
        outbound = Outbound(OutboundRules(allow_hosts=("127.0.0.1",), timeout_s=8))
        return TriggerTicker(
            Work(database, harness.bells, harness.notifier),
            harness.settings.triggers.model_copy(update=settings),
            harness.metrics,
            gates=Gates(database, outbound, at_once=4),
            planner=self._planner,
        )

    async def tick(self) -> Ticked:
        """Tick once."""
        return await self._ticker.tick()

    async def make(self, kind: str = "every", schedule: str = "60", **fields: Any) -> str:
        """Make a trigger of the engine, and return its id."""
        body = {"agent_id": AGENT, "prompt": "hello", "kind": kind, "schedule": schedule, **fields}
        async with self.database.connection() as connection:
            made = await workspace.create_trigger(
                connection, self.harness.tenant_id, TriggerCreate.model_validate(body), timezone="UTC", by="person"
            )
        return made.id

    async def patch(self, trigger_id: str, **fields: Any) -> TriggerView:
        """Change a trigger."""
        async with self.database.transaction() as connection:
            patch = TriggerPatch.model_validate(fields)
            return await workspace.patch_trigger(connection, self.harness.tenant_id, trigger_id, patch)

    async def resume(self, trigger_id: str) -> TriggerView:
        """End a pause."""
        async with self.database.transaction() as connection:
            return await workspace.resume_trigger(connection, self.harness.tenant_id, trigger_id)

    async def get(self, trigger_id: str) -> TriggerView:
        """Return a trigger."""
        async with self.database.connection() as connection:
            return await get_trigger(connection, self.harness.tenant_id, trigger_id)

    async def pass_time(self, seconds: float, trigger_id: str | None = None) -> None:
        """Let time pass for triggers: move all their times into the past."""
        for statement in _PASS_TIME:
            await self.database.execute(statement, seconds=float(seconds), trigger_id=trigger_id)

    async def firings(self, trigger_id: str) -> list[Row]:
        """Return the firings of a trigger's occurrences, in order."""
        return await self.database.fetch(
            "SELECT * FROM trigger_firings WHERE trigger_id = :trigger_id ORDER BY scheduled_for", trigger_id=trigger_id
        )

    async def outcomes(self, trigger_id: str) -> list[str]:
        """Return the outcomes of a trigger's occurrences, or why they were skipped, in order."""
        return [row["skip_reason"] or row["outcome"] for row in await self.firings(trigger_id)]

    async def notifications(self, trigger_id: str) -> list[str]:
        """Return the inbox's notifications about a trigger."""
        rows = await self.database.fetch("SELECT payload FROM deliveries WHERE kind = 'notification' ORDER BY id")
        return [row["payload"]["text"] for row in rows if row["payload"]["trigger_id"] == trigger_id]

    async def runs(self, trigger_id: str) -> list[Row]:
        """Return a trigger's runs."""
        return await self.database.fetch(
            "SELECT * FROM runs WHERE trigger_id = :trigger_id ORDER BY id", trigger_id=trigger_id
        )

    async def end_runs(self, status: str = "succeeded", error: str | None = None) -> None:
        """End all open runs, as if a worker had executed them."""
        await self.database.execute(
            "UPDATE runs SET status = :status, finished_at = clock_timestamp(), error_message = :error_message"
            " WHERE status IN ('queued', 'waiting')",
            status=status,
            error_message=error,
        )
