"""The native tools, which an engine provides itself, by the trust that they need.

Capabilities (MCP servers) work at every trust and are not native tools. The names are reserved: a capability's tool of
the same name gets its server's name as a prefix, with every engine and whether or not the native tool is offered, so
that a tool has one name in the ledger, in events and in approval rules.
"""

from collections.abc import Collection, Mapping
from typing import Final

from nova_workers.base.vocabulary import TrustLevel

FILE_TOOLS: Final = ("Read", "Write", "Edit", "Glob", "Grep")
"""File tools, confined to the working directory and the agent's directories."""

SHELL_TOOL: Final = "Bash"

SEARCH_TOOL: Final = "WebSearch"

SEARCH_WIRE_NAME: Final = "web_search"
"""The provider's name for the search that it runs itself."""

_WEB_TOOLS = (SEARCH_TOOL, "WebFetch")

NATIVE_TOOLS: Final[Mapping[TrustLevel, tuple[str, ...]]] = {
    "sandbox": (),
    "controlled": (*FILE_TOOLS, *_WEB_TOOLS),
    "unrestricted": (*FILE_TOOLS, *_WEB_TOOLS, SHELL_TOOL),
}
"""Strictly additive: each level has all tools of the previous one, and more."""

RESERVED_NAMES: Final = frozenset(name for names in NATIVE_TOOLS.values() for name in names)

CODE_STEP: Final = "Step"
"""The kind of a call in the journal that is a step of an agent in Python; its input names it."""
CODE_STEP_ONCE: Final = "StepOnce"
"""Likewise, of a step that is not executed again if it is not known whether it ended."""
CODE_MESSAGES: Final = "NewMessages"
"""Likewise, of the question of such an agent for messages that wait to join its run."""

CODE_MODEL: Final = "Model"
"""Likewise, of a question to a model of the fleet."""

CODE_CALLS: Final = frozenset({CODE_STEP, CODE_STEP_ONCE, CODE_MESSAGES, CODE_MODEL})

TAKEN_NAMES: Final = RESERVED_NAMES | {SEARCH_WIRE_NAME, "Task", "Agent", "Skill"} | CODE_CALLS
"""Names that no MCP server's tool gets: also the provider's and the engines' names for their own tools."""


def native_tools(trust: TrustLevel, only: Collection[str] | None = None) -> tuple[str, ...]:
    """Return the names of the native tools that this trust allows, and that are in `only` unless it is None."""
    return tuple(name for name in NATIVE_TOOLS[trust] if only is None or name in only)
