"""Gates: conditions that are evaluated before a trigger fires, without a model call and without holding a lock."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence

import structlog
from pydantic import ValidationError

from nova_workers.base.errors import OutboundFailed
from nova_workers.base.observability.addresses import bare_address
from nova_workers.base.outbound.requests import Outbound
from nova_workers.contracts.http.triggers import GATE, IdleGate, OpenTasksGate, UrlGate
from nova_workers.domain.triggers.rules.verdicts import GateAnswer
from nova_workers.domain.triggers.sql import gates as ledger
from nova_workers.domain.triggers.sql.due import DueTrigger
from nova_workers.ledger.database import Database

_log = structlog.get_logger(__name__)


class Gates:
    """Evaluates gates concurrently, each within a time limit."""

    def __init__(self, database: Database, outbound: Outbound, *, at_once: int) -> None:
        """Take the parts.

        Args:
            database: For gates on the fleet's state.
            outbound: For gates on a URL; it limits time and bytes.
            at_once: Maximum concurrent evaluations.
        """
        self._database = database
        self._outbound = outbound
        self._permits = asyncio.Semaphore(at_once)

    async def ask(self, triggers: Sequence[DueTrigger]) -> dict[str, GateAnswer]:
        """Return the gates' answers, by trigger.

        Raises:
            Unavailable: The database does not answer.
        """
        answers = await asyncio.gather(*(self._ask_one(trigger) for trigger in triggers))
        return {trigger.id: answer for trigger, answer in zip(triggers, answers, strict=True)}

    async def _ask_one(self, trigger: DueTrigger) -> GateAnswer:
        async with self._permits:
            try:
                gate = GATE.validate_python(trigger.gate)
            except ValidationError as error:
                # Written by an older or a newer release.
                _log.warning("trigger.gate_unknown", trigger_id=trigger.id, error=str(error))
                return GateAnswer(False, "Its gate cannot be read. Give it another one.")
            match gate:
                case UrlGate():
                    return await self._check_url(gate, trigger.gate_seen)
                case OpenTasksGate():
                    return await self._open_tasks(trigger)
                case IdleGate():
                    return await self._idle(trigger, gate.for_s)

    async def _check_url(self, gate: UrlGate, seen: str | None) -> GateAnswer:
        try:
            response = await self._outbound.request("GET", gate.url)
        except OutboundFailed as error:
            return GateAnswer(False, error.message)
        if response.status != gate.expect_status:
            return GateAnswer(
                False, f"{bare_address(gate.url)!r} answered {response.status}, not {gate.expect_status}."
            )
        if not gate.changed:
            return GateAnswer(True, "")
        found = hashlib.sha256(response.body).hexdigest()
        if found == seen:
            return GateAnswer(False, f"{bare_address(gate.url)!r} has not changed since the trigger fired last.")
        return GateAnswer(True, "", seen=found)

    async def _open_tasks(self, trigger: DueTrigger) -> GateAnswer:
        async with self._database.connection() as connection:
            opens = await ledger.has_active_task(connection, trigger.tenant_id, trigger.agent_id)
        return GateAnswer(opens, "" if opens else f"Agent {trigger.agent_id!r} has no active task.")

    async def _idle(self, trigger: DueTrigger, for_s: int) -> GateAnswer:
        async with self._database.connection() as connection:
            busy = await ledger.was_busy(connection, trigger.tenant_id, trigger.agent_id, within_s=for_s)
        return GateAnswer(not busy, f"Agent {trigger.agent_id!r} had a run within the last {for_s} s." if busy else "")
