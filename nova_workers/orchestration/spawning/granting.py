"""What an agent of an orchestration may hold: never more than its parent. Pure.

The master is the exception: it holds little itself and gives to its children what the orchestration's agent holds, so
the caller passes that agent as their parent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from nova_workers.contracts.agents import AgentSpec, CapabilityGrant
from nova_workers.contracts.mcp.servers import MCP_CAPABILITY
from nova_workers.contracts.native import native_tools
from nova_workers.contracts.orchestration import ORCHESTRATIONS, READ_TOOLS
from nova_workers.errors import AgentSpawnError
from nova_workers.orchestration.config.values import CapabilityProfile
from nova_workers.vocabulary import AgentRole

__all__ = ["CapabilityTools", "Granted", "check_tools", "granted", "withheld"]

CapabilityTools = Mapping[str, Mapping[str, bool] | None]
"""The tools of each capability by name, with whether each only reads; None if they are unknown until servers answer."""

_READ_ONLY_ROLES: Collection[AgentRole] = ("MASTER", "EXPERT", "REVIEWER")
_NEVER = frozenset({MCP_CAPABILITY, ORCHESTRATIONS, "user"})
"""Servers come by plugins, and the question to a person by role; what agents of this tree started would be outside its
bounds."""


@dataclass(frozen=True, slots=True)
class Granted:
    """What an agent holds."""

    native: tuple[str, ...]
    capabilities: Mapping[str, CapabilityGrant]


def granted(
    parent: AgentSpec,
    role: AgentRole,
    tools: Collection[str] | None,
    profile: CapabilityProfile,
    known: CapabilityTools,
) -> Granted:
    """Return what an agent gets: of what its parent holds, what was asked for.

    Args:
        parent: Its parent's configuration; of the master's children, that of the orchestration's agent.
        role: Its role. A master gets nothing but reading.
        tools: Native tools, tools of capabilities, and capabilities, by name; None: what its role gets.
        profile: The tools of capabilities that its role gets.
        known: All capabilities.
    """
    own = native_tools(parent.trust, parent.native_tools)
    if tools is None and role in _READ_ONLY_ROLES:
        native = tuple(name for name in own if name in READ_TOOLS)
    else:
        native = tuple(name for name in own if tools is None or name in tools)
    if role == "MASTER":
        return Granted(native, {})
    capabilities = {
        name: kept
        for name, grant in parent.capabilities.items()
        if name not in _NEVER and (kept := _kept(name, grant, tools, profile, known.get(name))) is not None
    }
    return Granted(native, capabilities)


def check_tools(parent: AgentSpec, tools: Iterable[str], known: CapabilityTools) -> None:
    """Check the tools that a spawn names.

    Raises:
        AgentSpawnError: The parent does not hold one.
    """
    held = set(native_tools(parent.trust, parent.native_tools))
    for name, grant in parent.capabilities.items():
        if name not in _NEVER:
            held |= {name, *_held(grant, known.get(name))}
    for tool in tools:
        if tool not in held:
            raise AgentSpawnError(
                f"tools: you have no tool {tool!r} that you could give. Available: "
                f"{', '.join(sorted(held)) or 'none'}. Tools of orchestrations need no naming. Leave out `tools` for "
                "those of the role."
            )


def withheld(parent: AgentSpec, role: AgentRole, profile: CapabilityProfile, known: CapabilityTools) -> tuple[str, ...]:
    """Return the tools of capabilities that a parent holds and an agent of this role gets only if they are named."""
    given = granted(parent, role, None, profile, known).capabilities
    return tuple(
        sorted(
            tool
            for name, grant in parent.capabilities.items()
            if name not in _NEVER
            for tool in _held(grant, known.get(name))
            if name not in given or tool not in _held(given[name], known.get(name))
        )
    )


def _kept(
    name: str,
    grant: CapabilityGrant,
    tools: Collection[str] | None,
    profile: CapabilityProfile,
    known: Mapping[str, bool] | None,
) -> CapabilityGrant | None:
    if tools is None:
        whole = any(fnmatchcase(name, pattern) for pattern in profile.tools)
    else:
        whole = name in tools
    if whole:
        return grant
    kept = tuple(
        tool
        for tool, reads in _held(grant, known).items()
        if (tool in tools if tools is not None else profile.includes(tool, reads=reads))
    )
    return grant.model_copy(update={"tools": kept}) if kept else None


def _held(grant: CapabilityGrant, known: Mapping[str, bool] | None) -> Mapping[str, bool]:
    if known is None:
        # Its tools are not known yet, so none can be said to read only.
        return dict.fromkeys(grant.tools or (), False)
    return {tool: reads for tool, reads in known.items() if grant.tools is None or tool in grant.tools}
