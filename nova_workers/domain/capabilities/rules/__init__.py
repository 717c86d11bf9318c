"""Capabilities: named sets of tools that an agent's configuration grants.

To add one, write the `tools` of its home with a function ``capability(parts)`` that returns a `seam.Capability`, and
name the module in `discovery`. Nothing else needs to change.
"""

from nova_workers.domain.capabilities.rules.discovery import default_registry
from nova_workers.domain.capabilities.rules.registry import CapabilityInfo, CapabilityRegistry, ToolInfo
from nova_workers.domain.capabilities.rules.seam import (
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
