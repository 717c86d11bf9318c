"""Former ids of agents that were renamed."""

from __future__ import annotations

from nova_workers.base.errors import AgentRenamed
from nova_workers.ledger.database import Connection

_ID_NOW = "SELECT renamed_to FROM agents WHERE tenant_id = :tenant_id AND id = :agent_id"


async def id_now(connection: Connection, tenant_id: str, agent_id: str) -> str | None:
    """Return the id that an agent with this former id has now. None for an id that is not a former one."""
    return await connection.fetchval(_ID_NOW, tenant_id=tenant_id, agent_id=agent_id)


async def refuse_former_id(connection: Connection, tenant_id: str, agent_id: str | None) -> None:
    """Refuse a former id. Any other passes: none, and those of no agent.

    Raises:
        AgentRenamed: It is a former id; the message names the agent's id now.
    """
    to_id = None if agent_id is None else await id_now(connection, tenant_id, agent_id)
    if agent_id is not None and to_id is not None:
        raise renamed(agent_id, to_id)


def renamed(agent_id: str, to_id: str) -> AgentRenamed:
    """Return the error of a former id."""
    return AgentRenamed(
        f"Agent {agent_id!r} was renamed to {to_id!r}; use that id.", kind="agent", id=agent_id, renamed_to=to_id
    )
