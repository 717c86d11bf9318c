"""Finds an agent of a tree by its id, or a unique part of it."""

from __future__ import annotations

from collections.abc import Sequence

from nova_workers.base.errors import NotFound
from nova_workers.contracts.orchestration import AgentDescriptor
from nova_workers.domain.orchestrations.sql.agents import agents_of
from nova_workers.domain.orchestrations.sql.locking import LockedTree
from nova_workers.ledger.database import Connection


async def find_agent(
    connection: Connection, tree: LockedTree, part: str, *, below: str | None = None
) -> AgentDescriptor:
    """Return the agent of a tree with an id, or a unique part of it.

    Args:
        connection: The ledger.
        tree: The orchestration.
        part: The id, or a part of it that no other agent's id has.
        below: Only children of this agent.

    Raises:
        NotFound: There is none, or there are several.
    """
    agents = await agents_of(connection, tree.tenant_id, tree.id)
    if below is None:
        return pick_agent(agents, part, what="agent")
    return pick_agent([agent for agent in agents if agent.parent_id == below], part, what="child")


def pick_agent(agents: Sequence[AgentDescriptor], part: str, *, what: str) -> AgentDescriptor:
    """Return the agent with an id, or a unique part of it.

    Raises:
        NotFound: There is none, or there are several.
    """
    wanted = part.strip().casefold()
    found = [agent for agent in agents if agent.id.casefold() == wanted] or [
        agent for agent in agents if wanted and wanted in agent.id.casefold()
    ]
    if len(found) == 1:
        return found[0]
    known = ", ".join(agent.id for agent in (found or agents)) or "none"
    if found:
        raise NotFound(f"Several agents match {part!r}: {known}. Give more of the id.", kind="agent", id=part)
    raise NotFound(f"There is no {what} {part!r}. There are: {known}.", kind="agent", id=part)
