"""State of agents for the gates of triggers."""

from __future__ import annotations

from nova_workers.base.vocabulary import DUE_RUNS, sql_list
from nova_workers.ledger.database import Connection

_HAS_ACTIVE_TASK = """
SELECT EXISTS (SELECT FROM tasks WHERE tenant_id = :tenant_id AND owner_agent_id = :agent_id AND status = 'active')
"""

# Ids grow with time, so an agent's latest runs are at the end of its index; older runs ended earlier, or are open.
_WAS_BUSY = f"""
SELECT EXISTS (SELECT FROM runs
                WHERE tenant_id = :tenant_id AND agent_id = :agent_id AND status IN {sql_list(DUE_RUNS)})
    OR EXISTS (SELECT FROM (SELECT finished_at FROM runs WHERE tenant_id = :tenant_id AND agent_id = :agent_id
                             ORDER BY id DESC LIMIT 100) latest
                WHERE finished_at > now() - :within_s * interval '1 second')
"""


async def has_active_task(connection: Connection, tenant_id: str, agent_id: str) -> bool:
    """Return whether an agent owns an active task."""
    return await connection.fetchval(_HAS_ACTIVE_TASK, tenant_id=tenant_id, agent_id=agent_id)


async def was_busy(connection: Connection, tenant_id: str, agent_id: str, *, within_s: int) -> bool:
    """Return whether an agent has a queued, running or waiting run, or had one within the last `within_s` seconds."""
    return await connection.fetchval(_WAS_BUSY, tenant_id=tenant_id, agent_id=agent_id, within_s=within_s)
