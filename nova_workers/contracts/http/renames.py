"""The HTTP contract of renaming an agent."""

from typing import Literal

from nova_workers.contracts.agents import AgentId
from nova_workers.contracts.bodies import Body, View

__all__ = ["AgentRename", "AgentRenameView"]


class AgentRename(Body):
    """Another id for an agent."""

    to: AgentId


class AgentRenameView(View):
    """The state of a rename."""

    id: str
    """The agent's id now."""
    former_id: str
    state: Literal["moving", "done"]
    """While it is `moving`, the agent starts no runs; messages are accepted and queued."""
    threads_left: int
    """Threads that are not at the new id yet."""
    settings: list[str]
    """Settings of the fleet that name the former id, which an operator must change."""
