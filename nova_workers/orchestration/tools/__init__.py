"""The orchestration tools: what an agent of an orchestration has besides its own tools, by its role."""

from nova_workers.orchestration.tools.capability import CAPABILITY, OrchestrationCapability

__all__ = ["CAPABILITY", "OrchestrationCapability"]
