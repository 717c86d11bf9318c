"""Gates: conditions that are looked at before a trigger fires. Looking costs no model call, and holds no lock."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence

import structlog
from pydantic import ValidationError

from nova_workers.contracts.http.triggers import GATE, IdleGate, OpenTasksGate, UrlGate
from nova_workers.errors import OutboundFailed
from nova_workers.ledger.database import Database
from nova_workers.ledger.triggers import gates as ledger
from nova_workers.ledger.triggers.firing import DueTrigger
from nova_workers.outbound import Outbound
from nova_workers.triggers.verdicts import GateAnswer

__all__ = ["Gates"]

_log = structlog.get_logger(__name__)


class Gates:
    """Looks at gates, several at once, each for a bounded time."""

    def __init__(self, database: Database, outbound: Outbound, *, at_once: int) -> None:
        """Take what gates are looked at with.

        Args:
            database: For those that ask about the fleet.
            outbound: For those that ask an address; it bounds the time and what is read.
            at_once: Most looks at the same time.
        """
        self._database = database
        self._outbound = outbound
        self._room = asyncio.Semaphore(at_once)

    async def ask(self, triggers: Sequence[DueTrigger]) -> dict[str, GateAnswer]:
        """Return what the gates of triggers say, by trigger.

        Raises:
            Unavailable: The database does not answer.
        """
        answers = await asyncio.gather(*(self._ask_one(trigger) for trigger in triggers))
        return {trigger.id: answer for trigger, answer in zip(triggers, answers, strict=True)}

    async def _ask_one(self, trigger: DueTrigger) -> GateAnswer:
        async with self._room:
            try:
                gate = GATE.validate_python(trigger.gate)
            except ValidationError as error:
                # Written by an older or a newer release.
                _log.warning("trigger.gate_unknown", trigger_id=trigger.id, error=str(error))
                return GateAnswer(False, "Its gate cannot be read. Give it another one.")
            match gate:
                case UrlGate():
                    return await self._look_at(gate, trigger.gate_seen)
                case OpenTasksGate():
                    return await self._open_tasks(trigger)
                case IdleGate():
                    return await self._idle(trigger, gate.for_s)

    async def _look_at(self, gate: UrlGate, seen: str | None) -> GateAnswer:
        try:
            response = await self._outbound.request("GET", gate.url)
        except OutboundFailed as error:
            return GateAnswer(False, error.message)
        if response.status != gate.expect_status:
            return GateAnswer(False, f"{gate.url!r} answered {response.status}, not {gate.expect_status}.")
        if not gate.changed:
            return GateAnswer(True, "")
        found = hashlib.sha256(response.body).hexdigest()
        if found == seen:
            return GateAnswer(False, f"{gate.url!r} says what it said when the trigger fired last.")
        return GateAnswer(True, "", seen=found)

    async def _open_tasks(self, trigger: DueTrigger) -> GateAnswer:
        async with self._database.connection() as connection:
            opens = await ledger.has_active_task(connection, trigger.tenant_id, trigger.agent_id)
        return GateAnswer(opens, "" if opens else f"Agent {trigger.agent_id!r} has no active task.")

    async def _idle(self, trigger: DueTrigger, for_s: int) -> GateAnswer:
        async with self._database.connection() as connection:
            busy = await ledger.was_busy(connection, trigger.tenant_id, trigger.agent_id, within_s=for_s)
        return GateAnswer(not busy, f"Agent {trigger.agent_id!r} had a run within the last {for_s} s." if busy else "")
