"""The capabilities of a process that describes and checks them, and seldom so."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import BaseModel

from nova_workers.base.deferred import Deferred
from nova_workers.contracts.agents import AgentSpec, CapabilityGrant
from nova_workers.contracts.orchestration import CapabilityTools
from nova_workers.domain.capabilities.rules.registry import CapabilityInfo, CapabilityRegistry


class DeferredRegistry:
    """What writers of agents need of the registry. Its capabilities are imported at first use: 1.4 MB, 50 ms."""

    def __init__(self, make: Callable[[], CapabilityRegistry]) -> None:
        self._deferred = Deferred("the capabilities", make)

    async def load(self) -> None:
        """Import the capabilities in a thread. The methods below do it themselves otherwise, and block."""
        await self._deferred.get()

    def discover(self) -> tuple[CapabilityInfo, ...]:
        """See `CapabilityRegistry.discover`."""
        return self._deferred.make().discover()

    def tool_effects(self) -> CapabilityTools:
        """See `CapabilityRegistry.tool_effects`."""
        return self._deferred.make().tool_effects()

    def validate(self, spec: AgentSpec) -> None:
        """See `CapabilityRegistry.validate`."""
        self._deferred.make().validate(spec)

    def declared_names(self, spec: AgentSpec) -> set[str]:
        """See `CapabilityRegistry.declared_names`."""
        return self._deferred.make().declared_names(spec)

    def config_type(self, name: str) -> type[BaseModel] | None:
        """See `CapabilityRegistry.config_type`."""
        return self._deferred.make().config_type(name)

    def config_of(self, name: str, grant: CapabilityGrant) -> BaseModel | None:
        """See `CapabilityRegistry.config_of`."""
        return self._deferred.make().config_of(name, grant)
