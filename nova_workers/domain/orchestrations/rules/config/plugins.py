"""Which plugins (MCP servers) an agent of an orchestration has. Pure."""

import re
from collections.abc import Collection, Mapping

from nova_workers.base.vocabulary import AgentRole
from nova_workers.contracts.mcp.servers import McpServerForm
from nova_workers.domain.orchestrations.rules.config.values import Plugin

_WORD = re.compile(r"[^\W_]+")


def resolve_plugins(
    plugins: Mapping[str, Plugin],
    *,
    role: AgentRole,
    prompt: str,
    mcp_servers: Mapping[str, McpServerForm] | None = None,
    exclude_plugins: Collection[str] = (),
) -> dict[str, McpServerForm]:
    """Return the MCP servers of an agent, by name.

    Servers that a request names itself are merged over all plugins. Else plugins are matched if any has tags: those
    without tags, and those with a tag that is the agent's role or occurs in its prompt as whole words, in any case.
    Else all plugins are taken. What is excluded is removed last, whichever way it came in.

    Args:
        plugins: Of the configuration.
        role: Of the agent.
        prompt: What the agent is to do.
        mcp_servers: What the request names; None names nothing, an empty mapping takes all plugins.
        exclude_plugins: Names that the agent must not have.
    """
    chosen: dict[str, McpServerForm]
    if mcp_servers is not None:
        chosen = {**plugins, **mcp_servers}
    elif any(plugin.tags for plugin in plugins.values()):
        words = _words(prompt)
        chosen = {name: plugin for name, plugin in plugins.items() if _matches(plugin, role, words)}
    else:
        chosen = {**plugins}
    return {name: server for name, server in chosen.items() if name not in exclude_plugins}


def _matches(plugin: Plugin, role: AgentRole, words: str) -> bool:
    return not plugin.tags or any(
        tag == role.lower() or ((spaced := _words(tag)) and spaced in words) for tag in plugin.tags
    )


def _words(text: str) -> str:
    """Return the words of a text between blanks, so that a substring of it is whole words."""
    found = _WORD.findall(text.casefold())
    return f" {' '.join(found)} " if found else ""
