"""Starts orchestrations under the tenant's configuration: for requests over HTTP, agents and triggers."""

from __future__ import annotations

from nova_workers.base.vocabulary import RunSource
from nova_workers.contracts.http.orchestrations import OrchestrationCreate
from nova_workers.contracts.http.started import Started
from nova_workers.contracts.orchestration import Origin
from nova_workers.contracts.runs import RequestKey
from nova_workers.domain.orchestrations.rules.config.service import OrchestrationConfigs
from nova_workers.domain.orchestrations.rules.planning import NewOrchestration, narrowed_limits
from nova_workers.domain.orchestrations.rules.service import Orchestrations
from nova_workers.domain.orchestrations.sql.spawning import NewTree


class OrchestrationStarter:
    """Implements `OrchestrationControl` and `TreePlanner`. One object per process."""

    def __init__(self, orchestrations: Orchestrations, configs: OrchestrationConfigs) -> None:
        self._orchestrations = orchestrations
        self._configs = configs

    async def start(
        self,
        tenant_id: str,
        wanted: OrchestrationCreate,
        *,
        request: RequestKey | None = None,
    ) -> Started:
        """Start an orchestration under the tenant's configuration as it is now.

        Raises:
            InvalidInput: A bound is higher than the configuration permits, or the configuration cannot be read.
            NovaError: See `Orchestrations.start`.
        """
        # As in `start_by_agent`.
        before = None if request is None else await self._orchestrations.find_replay(tenant_id, request)
        if before is not None:
            return before
        return await self._orchestrations.start(await self._resolve(tenant_id, wanted, source="api", request=request))

    async def start_by_agent(self, tenant_id: str, wanted: OrchestrationCreate, origin: Origin) -> Started:
        """Start an orchestration for an agent; a repeated call with the same key returns the first one's.

        Raises:
            InvalidInput: As `start`.
            NovaError: As `start`.
        """
        # First of all: what it was planned with may not be available any more.
        before = None if origin.key is None else await self._orchestrations.find_started(tenant_id, origin.key)
        if before is not None:
            return before
        return await self._orchestrations.start(await self._resolve(tenant_id, wanted, source="agent", origin=origin))

    async def plan(self, tenant_id: str, agent_id: str, task: str) -> NewTree:
        """Return the orchestration of a trigger, ready to be inserted.

        Raises:
            InvalidInput: The configuration cannot be read.
            NovaError: See `plan_tree`.
        """
        wanted = OrchestrationCreate(agent_id=agent_id, task=task, queue="background")
        return await self._orchestrations.plan(await self._resolve(tenant_id, wanted, source="trigger"))

    async def kill(self, tenant_id: str, orchestration_id: str, agent: str | None, why: str) -> list[str]:
        """Kill an agent with all below it; see `Orchestrations.kill`."""
        killed, _ = await self._orchestrations.kill(tenant_id, orchestration_id, agent, why)
        return killed

    async def _resolve(
        self,
        tenant_id: str,
        wanted: OrchestrationCreate,
        *,
        source: RunSource,
        origin: Origin | None = None,
        request: RequestKey | None = None,
    ) -> NewOrchestration:
        config, version = await self._configs.load(tenant_id)
        return NewOrchestration(
            tenant_id,
            wanted.agent_id,
            wanted.task,
            config=config,
            config_version=version or None,
            limits=narrowed_limits(config, wanted),
            model=wanted.model,
            cwd=wanted.cwd,
            queue=wanted.queue,
            source=source,
            origin=origin,
            metadata=wanted.metadata,
            request=request,
            is_external=wanted.master == "external",
        )
