"""A ledger for rehearsals: what is written in it is rolled back.

The first turn on a session of Postgres takes about four times the CPU of later ones: the server process reads the
catalog of these tables, and plans each statement anew for five executions before it keeps a plan. Rehearsed turns have
it do so before the first real one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from nova_workers.base.ids import new_id
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.content import text_block
from nova_workers.contracts.runs import Accepted, Submission
from nova_workers.domain.agents.sql.records import create_agent
from nova_workers.domain.runs.sql.submit import insert_run_on_new_thread
from nova_workers.domain.tenants.sql.settings import ensure_tenant
from nova_workers.ledger.database import Connection, Database, Snapshot
from nova_workers.ledger.sessions import FLEET_ROLE, TENANT_ROLE

PLANNED_AFTER: Final = 6
"""Executions of a statement after which Postgres plans it no more: five are planned each for its values."""

REHEARSED: Final = "rehearsal"
"""The id of the agent to which messages are submitted."""

# In this transaction only. The user of a session may take on its roles, whichever of them it has now.
_BECOME: Final = "SELECT set_config('role', :role, true)"


class _RolledBackError(Exception):
    """Ends a rehearsal."""


class RehearsalLedger(Database):
    """The one transaction of a rehearsal, with a tenant and an agent of its own."""

    def __init__(self, connection: Connection, tenant_id: str) -> None:
        self._connection = connection
        self.tenant_id = tenant_id

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[Connection]:
        """Lend the connection."""
        yield self._connection

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Connection]:
        """Lend the connection, in the transaction that it is in."""
        yield self._connection

    @asynccontextmanager
    async def snapshot(self) -> AsyncGenerator[Snapshot]:
        """Raise an error: no rehearsal reads a snapshot."""
        raise NotImplementedError
        yield

    async def submit(self) -> Accepted:
        """Queue a message on a new thread."""
        submission = Submission(tenant_id=self.tenant_id, content=(text_block("Hello"),), agent_id=REHEARSED)
        accepted = await insert_run_on_new_thread(self._connection, submission, new_id("run"))
        assert accepted is not None  # noqa: S101 - the agent was made in this transaction
        return accepted


@asynccontextmanager
async def rehearsal(
    database: Database, agent: AgentSpec, *, tenant_id: str | None = None
) -> AsyncGenerator[RehearsalLedger]:
    """Begin a rehearsal, on the idle session that the next statement would get. It is rolled back after the block.

    Args:
        database: Of the process.
        agent: The configuration of the agent to which messages are submitted.
        tenant_id: A new id, to which this context is bound: its sessions may make no tenant, so it is made in the role
            of the fleet. None where the sessions are in that role.

    Raises:
        Unavailable: The database does not answer.
    """
    try:
        async with database.transaction() as connection:
            ledger = RehearsalLedger(connection, tenant_id or new_id("ten"))
            if tenant_id is not None:
                await connection.execute(_BECOME, role=FLEET_ROLE)
            await ensure_tenant(connection, ledger.tenant_id, name="Rehearsal")
            await create_agent(connection, ledger.tenant_id, REHEARSED, agent, created_by="person")
            if tenant_id is not None:
                await connection.execute(_BECOME, role=TENANT_ROLE)
            yield ledger
            raise _RolledBackError
    except _RolledBackError:
        pass
