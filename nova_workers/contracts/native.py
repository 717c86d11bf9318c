"""The native tools: those that an engine brings itself, by the trust that they need.

Capabilities (MCP servers) work at every trust and are none of these. The names are reserved: a capability's tool of the
same name goes by its server's name as well, whether or not the native one is offered.
"""

from collections.abc import Mapping
from typing import Final

from nova_workers.contracts.engine import TrustLevel

__all__ = ["FILE_TOOLS", "NATIVE_TOOLS", "RESERVED_NAMES", "SHELL_TOOL", "native_tools"]

FILE_TOOLS: Final = ("Read", "Write", "Edit", "Glob", "Grep")
"""Confined to the working directory and the agent's directories."""

SHELL_TOOL: Final = "Bash"

_WEB_TOOLS = ("WebSearch", "WebFetch")

NATIVE_TOOLS: Final[Mapping[TrustLevel, tuple[str, ...]]] = {
    "sandbox": (),
    "controlled": (*FILE_TOOLS, *_WEB_TOOLS),
    "unrestricted": (*FILE_TOOLS, *_WEB_TOOLS, SHELL_TOOL),
}
"""Strictly additive: each level has all tools of the one before it, and more."""

RESERVED_NAMES: Final = frozenset(name for names in NATIVE_TOOLS.values() for name in names)


def native_tools(trust: TrustLevel) -> tuple[str, ...]:
    """Return the names of the native tools that this trust allows."""
    return NATIVE_TOOLS[trust]
