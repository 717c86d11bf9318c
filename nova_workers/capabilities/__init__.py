"""Capabilities: named sets of tools that an agent's configuration grants.

To add one, write its module with a class that implements `seam.Capability`, and name it in `default_registry`.
"""

from nova_workers.capabilities.memory import MemoryCapability
from nova_workers.capabilities.registry import CapabilityInfo, CapabilityRegistry, ToolInfo
from nova_workers.capabilities.seam import Capability, CapabilityContext, NoConfig, ToolDeclaration, ToolInput
from nova_workers.ledger.database import Database

__all__ = [
    "Capability",
    "CapabilityContext",
    "CapabilityInfo",
    "CapabilityRegistry",
    "MemoryCapability",
    "NoConfig",
    "ToolDeclaration",
    "ToolInfo",
    "ToolInput",
    "default_registry",
]


def default_registry(database: Database) -> CapabilityRegistry:
    """Return the registry of all capabilities that ship with the fleet."""
    return CapabilityRegistry([MemoryCapability(database)])
