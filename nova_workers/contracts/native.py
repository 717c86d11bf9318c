"""The native tools: those that an engine brings itself, by the trust that they need.

Capabilities (MCP servers) work at every trust and are none of these. The names are reserved: a capability's tool of the
same name goes by its server's name as well, whether or not the native one is offered, and with every engine: a tool has
one name in the ledger, in events and in approval rules.
"""

from collections.abc import Mapping
from typing import Final

from nova_workers.contracts.engine import TrustLevel

__all__ = [
    "FILE_TOOLS",
    "NATIVE_TOOLS",
    "RESERVED_NAMES",
    "SEARCH_TOOL",
    "SEARCH_WIRE_NAME",
    "SHELL_TOOL",
    "TAKEN_NAMES",
    "native_tools",
]

FILE_TOOLS: Final = ("Read", "Write", "Edit", "Glob", "Grep")
"""Confined to the working directory and the agent's directories."""

SHELL_TOOL: Final = "Bash"

SEARCH_TOOL: Final = "WebSearch"

SEARCH_WIRE_NAME: Final = "web_search"
"""What the model's provider calls the search that it runs itself."""

_WEB_TOOLS = (SEARCH_TOOL, "WebFetch")

NATIVE_TOOLS: Final[Mapping[TrustLevel, tuple[str, ...]]] = {
    "sandbox": (),
    "controlled": (*FILE_TOOLS, *_WEB_TOOLS),
    "unrestricted": (*FILE_TOOLS, *_WEB_TOOLS, SHELL_TOOL),
}
"""Strictly additive: each level has all tools of the one before it, and more."""

RESERVED_NAMES: Final = frozenset(name for names in NATIVE_TOOLS.values() for name in names)

TAKEN_NAMES: Final = RESERVED_NAMES | {SEARCH_WIRE_NAME, "Task", "Agent", "Skill"}
"""What no server's tool is called: also what the provider and the engines call tools of their own."""


def native_tools(trust: TrustLevel) -> tuple[str, ...]:
    """Return the names of the native tools that this trust allows."""
    return NATIVE_TOOLS[trust]
