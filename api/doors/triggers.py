"""What a door does with triggers, for protocols that have schedules."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from nova_workers.contracts.http.triggers import TriggerCreate, TriggerPatch, TriggerView
from nova_workers.contracts.runs import RequestKey
from nova_workers.domain.agents.rules.service import PERSON
from nova_workers.domain.triggers.rules import definitions
from nova_workers.domain.triggers.sql import definitions as ledger

from ..auth import SchedulingCaller
from ..repeats import written_once
from ..state import state_of
from .service import Door


class TriggerDoor(Door):
    """The service for one request about triggers, whose key has the scope `workspace` too."""

    __slots__ = ()

    async def create_trigger(self, given: TriggerCreate, *, key: RequestKey | None) -> TriggerView:
        """Create a trigger, once for a request's key.

        Raises:
            NovaError: As `create_once`; then there is no trigger.
        """
        services, tenant_id = self.state.services, self.caller.tenant_id

        async def write() -> tuple[TriggerView, bool]:
            async with services.database.transaction() as connection:
                return await definitions.create_once(
                    connection, tenant_id, given, timezone=services.settings.timezone, by=PERSON, request=key
                )

        made, _ = await written_once("the trigger", key, write)
        return made

    async def trigger(self, trigger_id: str) -> TriggerView:
        """Return a trigger.

        Raises:
            NotFound: No such trigger in this tenant.
            Gone: It was deleted.
        """
        async with self.state.services.database.connection() as connection:
            return await ledger.get_trigger(connection, self.caller.tenant_id, trigger_id)

    async def triggers(self, *, agent_id: str | None, before: str | None, limit: int) -> list[TriggerView]:
        """Return triggers, newest first, from before the trigger `before`: of one agent, or of all."""
        async with self.state.services.database.connection() as connection:
            return await ledger.list_triggers(
                connection, self.caller.tenant_id, agent_id=agent_id, before=before, limit=limit
            )

    async def patch_trigger(self, trigger_id: str, given: TriggerPatch) -> TriggerView:
        """Change the fields that `given` sets.

        Raises:
            NovaError: As `definitions.patch_trigger`; then nothing is changed.
        """
        async with self.state.services.database.transaction() as connection:
            return await definitions.patch_trigger(connection, self.caller.tenant_id, trigger_id, given)

    async def delete_trigger(self, trigger_id: str) -> None:
        """Delete a trigger.

        Raises:
            NotFound: No such trigger in this tenant.
            Gone: It was deleted before.
        """
        async with self.state.services.database.connection() as connection:
            await ledger.delete_trigger(connection, self.caller.tenant_id, trigger_id)


async def _trigger_door(request: Request, caller: SchedulingCaller) -> TriggerDoor:
    return TriggerDoor(state_of(request), caller, request)


SchedulingDoor = Annotated[TriggerDoor, Depends(_trigger_door)]
"""The door of a route about triggers: its changes are in the audit log."""
