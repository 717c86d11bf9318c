"""The `client` capability: tools that the caller of a run executes."""

from pydantic import BaseModel

from nova_workers.domain.capabilities.rules.seam import (
    Capability,
    CapabilityContext,
    CapabilityParts,
    ClientServer,
    NoConfig,
    Servers,
)


class _ClientTools:
    name = "client"
    description = "Tools that the caller of the run brings and executes. The run waits for each result."
    config: type[BaseModel] = NoConfig
    tools = None

    def injected(self, context: CapabilityContext) -> bool:
        """Return whether the caller brings any."""
        return bool(context.client_tools)

    async def resolve(self, config: BaseModel, context: CapabilityContext) -> Servers:
        """Return their server."""
        del config
        return ClientServer(context.client_tools)


def capability(_: CapabilityParts) -> Capability:
    """Return the capability."""
    return _ClientTools()
