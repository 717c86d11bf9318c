"""Addresses that get the changes of runs."""

from __future__ import annotations

from nova_workers.contracts.pushes import PushConfigCreate, PushConfigView
from nova_workers.domain.runs.rules.submit import WithRun
from nova_workers.domain.webhooks.sql.push_configs import delete_push_config, list_push_configs
from nova_workers.ledger.auditing import act_as

from .request import DoorRequest


class Pushes(DoorRequest):
    """What keeps addresses for the changes of runs."""

    __slots__ = ()

    def with_push(self, given: PushConfigCreate) -> WithRun:
        """Return the writer of an address that gets the changes of the run that is made with it.

        It is in the audit log.

        Raises:
            InvalidInput: Deliveries to the address are not allowed.
        """
        act_as(self.caller.actor())
        return self.state.services.pushes.adding(self.caller.tenant_id, given)

    async def put_push(self, run_id: str, given: PushConfigCreate) -> PushConfigView:
        """Let an address get the changes of a run, or replace the one of its name. It is in the audit log.

        Raises:
            NovaError: As `Pushes.put`.
        """
        act_as(self.caller.actor())
        return await self.state.services.pushes.put(self.caller.tenant_id, run_id, given)

    async def pushes(self, run_id: str) -> list[PushConfigView]:
        """Return the addresses that get the changes of a run."""
        async with self.state.services.database.connection() as connection:
            return await list_push_configs(connection, self.caller.tenant_id, run_id)

    async def delete_push(self, run_id: str, name: str) -> None:
        """Delete an address of a run; one that is not there is deleted already. It is in the audit log."""
        act_as(self.caller.actor())
        async with self.state.services.database.connection() as connection:
            await delete_push_config(connection, self.caller.tenant_id, run_id, name)
