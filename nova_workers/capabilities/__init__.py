"""Capabilities: named sets of tools that an agent's configuration grants.

To add one, write a module in `catalog` with a function ``capability(parts)`` that returns a `seam.Capability`. Nothing
else needs to change: the registry finds it there.
"""

from nova_workers.capabilities.discovery import default_registry
from nova_workers.capabilities.registry import CapabilityInfo, CapabilityRegistry, ToolInfo
from nova_workers.capabilities.seam import (
    Capability,
    CapabilityContext,
    CapabilityParts,
    NoConfig,
    ToolCapability,
    ToolDeclaration,
    ToolInput,
)

__all__ = [
    "Capability",
    "CapabilityContext",
    "CapabilityInfo",
    "CapabilityParts",
    "CapabilityRegistry",
    "NoConfig",
    "ToolCapability",
    "ToolDeclaration",
    "ToolInfo",
    "ToolInput",
    "default_registry",
]
