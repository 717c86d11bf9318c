"""What an agent of an orchestration reads by its tools: its children, their conversations, and models."""

from __future__ import annotations

from dataclasses import dataclass

from nova_workers.base.vocabulary import Complexity
from nova_workers.contracts.orchestration import AgentDescriptor, HistoryEntry
from nova_workers.domain.orchestrations.rules.actions import Caller
from nova_workers.domain.orchestrations.rules.config.values import OrchestrationConfig
from nova_workers.domain.orchestrations.rules.finding import pick_agent
from nova_workers.domain.orchestrations.rules.history import load_history
from nova_workers.domain.orchestrations.rules.models.choice import ModelChooser, Recommendation
from nova_workers.domain.orchestrations.sql import agents as ledger
from nova_workers.domain.orchestrations.sql.locking import frozen_config
from nova_workers.ledger.database import Database
from nova_workers.ledger.stored import read_stored


@dataclass(frozen=True)
class AgentViews:
    """Reads for agents. One object serves all worker slots of a process."""

    database: Database
    models: ModelChooser

    async def children(self, caller: Caller) -> list[AgentDescriptor]:
        """Return the children of an agent as they stand."""
        async with self.database.connection() as connection:
            agents = await ledger.agents_of(connection, caller.tenant_id, caller.orchestration_id)
        return [agent for agent in agents if agent.parent_id == caller.agent_id]

    async def child(self, caller: Caller, part: str) -> AgentDescriptor:
        """Return a child by its id, or a unique part of it.

        Raises:
            NotFound: There is none, or there are several.
        """
        return pick_agent(await self.children(caller), part, what="child")

    async def child_history(self, caller: Caller, part: str) -> tuple[AgentDescriptor, list[HistoryEntry]]:
        """Return a child and its conversation, oldest first.

        Raises:
            NotFound: There is no such child, or there are several.
        """
        child = await self.child(caller, part)
        async with self.database.connection() as connection:
            return child, await load_history(connection, caller.tenant_id, child.thread_id)

    async def recommend_model(self, caller: Caller, task: str, complexity: Complexity | None) -> Recommendation:
        """Return the model that fits a task, of those that children may have.

        Raises:
            ModelNotAvailableError: See `ModelChooser.recommend`.
        """
        config = await self._config(caller)
        return await self.models.recommend(caller.tenant_id, config, task, complexity)

    async def peers(self, caller: Caller) -> tuple[dict[str, str], str | None]:
        """Return the models to ask for a second opinion by name, and the one that is asked if none is named."""
        config = await self._config(caller)
        return await self.models.peers(caller.tenant_id, config), config.defaults.peer_model

    async def _config(self, caller: Caller) -> OrchestrationConfig:
        async with self.database.connection() as connection:
            kept = await frozen_config(connection, caller.tenant_id, caller.orchestration_id)
        return read_stored(OrchestrationConfig.model_validate, kept)
