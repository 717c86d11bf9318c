"""What an agent of an orchestration may hold: never more than its parent. Pure.

The master is the exception: it holds little itself and gives to its children what the orchestration's agent holds, and
the servers of the configuration. So the giver of a master's children is made of these.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from nova_workers.base.errors import AgentSpawnError
from nova_workers.base.vocabulary import AgentRole, PermissionMode
from nova_workers.contracts.agents import AgentSpec, CapabilityGrant
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.mcp.servers import MCP_CAPABILITY, McpServerForm
from nova_workers.contracts.native import native_tools
from nova_workers.contracts.orchestration import ORCHESTRATIONS, READ_TOOLS, CapabilityTools, ToolEffect
from nova_workers.domain.orchestrations.rules.config.values import CapabilityProfile
from nova_workers.domain.orchestrations.rules.spawning.areas import WorkArea, may_write, writes_files

_READ_ONLY_ROLES: Collection[AgentRole] = ("MASTER", "EXPERT", "REVIEWER")
_NEVER = frozenset({MCP_CAPABILITY, ORCHESTRATIONS, "user"})
"""Servers are granted each by itself, and the question to a person comes by role; what agents of this tree started
would be outside its bounds."""


@dataclass(frozen=True, slots=True)
class Giver:
    """What a child gets at most.

    Attributes:
        spec: Whose tools: the parent's configuration, of a master's children that of the orchestration's agent.
        known: All capabilities.
        area: Where the parent may write, likewise.
        cwd: The working directory of the parent itself, if it has one of its own.
        permission_mode: The parent's.
        servers: The MCP servers that the parent has, as `form_of` returns each; None: a master gives all.
    """

    spec: AgentSpec
    known: CapabilityTools
    area: WorkArea
    cwd: str | None = None
    permission_mode: PermissionMode = "DEFAULT"
    servers: Mapping[str, JsonObject] | None = field(default_factory=dict[str, JsonObject])

    @property
    def start(self) -> str:
        """Where paths that the parent gives start."""
        return self.area.at(self.cwd).start

    def may_give(self, name: str, server: McpServerForm) -> bool:
        """Return whether the parent has this server: one of the same name and configuration."""
        return self.servers is None or self.servers.get(name) == form_of(server)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a child is to get.

    Attributes:
        role: Its role. A master gets nothing but reading.
        tools: Native tools, tools of capabilities, and capabilities, by name; None: what its role gets.
        profile: The tools of capabilities that its role gets.
        servers: MCP servers by name.
        cwd: Its working directory; None leaves that to its place beside others.
    """

    role: AgentRole
    tools: Collection[str] | None
    profile: CapabilityProfile
    servers: Mapping[str, McpServerForm] = field(default_factory=dict[str, McpServerForm])
    cwd: str | None = None
    permission_mode: PermissionMode = "DEFAULT"


@dataclass(frozen=True, slots=True)
class Granted:
    """What an agent holds.

    Attributes:
        servers: MCP servers, as `form_of` returns each.
        cwd: Its working directory, an absolute path; None if it asked for none, or for one that it may not have.
        writes: Whether it may write files.
    """

    native: tuple[str, ...] = ()
    capabilities: Mapping[str, CapabilityGrant] = field(default_factory=dict[str, CapabilityGrant])
    servers: Mapping[str, JsonObject] = field(default_factory=dict[str, JsonObject])
    cwd: str | None = None
    permission_mode: PermissionMode = "DEFAULT"
    writes: bool = False


def granted(parent: Giver, asked: Asked) -> Granted:
    """Return the grants of an agent: those of its parent that were asked for."""
    spec, role, tools = parent.spec, asked.role, asked.tools
    own = native_tools(spec.trust, spec.native_tools)
    if tools is None and role in _READ_ONLY_ROLES:
        native = tuple(name for name in own if name in READ_TOOLS)
    else:
        native = tuple(name for name in own if tools is None or name in tools)
    # Otherwise an agent that may only read would write through a child.
    mode: PermissionMode = "PLAN" if parent.permission_mode == "PLAN" else asked.permission_mode
    capabilities = {} if role == "MASTER" else _capabilities(spec, parent.known, tools, asked.profile)
    held = {name: grant.tools for name, grant in capabilities.items()}
    writes = may_write(native, mode, by_capabilities=writes_files(held, parent.known))
    area = parent.area if writes else parent.area.at(None)
    return Granted(
        native,
        capabilities,
        {name: form_of(server) for name, server in asked.servers.items() if parent.may_give(name, server)},
        None if asked.cwd is None else area.resolve(asked.cwd, start=parent.start),
        mode,
        writes,
    )


def check_directory(parent: Giver, asked: Asked, held: Granted) -> None:
    """Check the working directory that a request names.

    Raises:
        AgentSpawnError: The agent may not have it.
    """
    if asked.cwd is not None and held.cwd is None:
        area = parent.area if held.writes else parent.area.at(None)
        raise AgentSpawnError(
            f"cwd: {asked.cwd!r} is not within the directories that you could give: "
            f"{', '.join(map(repr, area.roots))}. Give a name, which is below {parent.start!r}, or an absolute "
            "path without '..'; or leave it out for the default."
        )


def check_tools(parent: Giver, tools: Iterable[str]) -> None:
    """Check the tools that a spawn names.

    Raises:
        AgentSpawnError: The parent does not hold one.
    """
    spec = parent.spec
    held = set(native_tools(spec.trust, spec.native_tools))
    for name, grant in spec.capabilities.items():
        if name not in _NEVER:
            held |= {name, *_held(grant, parent.known.get(name))}
    for tool in tools:
        if tool not in held:
            raise AgentSpawnError(
                f"tools: you have no tool {tool!r} that you could give. Available: "
                f"{', '.join(sorted(held)) or 'none'}. Tools of orchestrations need no naming. Leave out `tools` for "
                "those of the role."
            )


def withheld(parent: AgentSpec, profile: CapabilityProfile, known: CapabilityTools) -> tuple[str, ...]:
    """Return the tools of capabilities that a parent holds and an agent with this profile gets only by name."""
    given = _capabilities(parent, known, None, profile)
    return tuple(
        sorted(
            tool
            for name, grant in parent.capabilities.items()
            if name not in _NEVER
            for tool in _held(grant, known.get(name))
            if name not in given or tool not in _held(given[name], known.get(name))
        )
    )


def form_of(server: McpServerForm) -> JsonObject:
    """Return a server as an agent's configuration has it. The capability `mcp` knows no tags."""
    return server.model_dump(mode="json", exclude={"tags"})


def servers_of(spec: AgentSpec) -> Mapping[str, JsonObject]:
    """Return the MCP servers of an agent of an orchestration, by name."""
    grant = spec.capabilities.get(MCP_CAPABILITY)
    return {} if grant is None else grant.config.get("servers", {})


def _capabilities(
    parent: AgentSpec, known: CapabilityTools, tools: Collection[str] | None, profile: CapabilityProfile
) -> dict[str, CapabilityGrant]:
    return {
        name: kept
        for name, grant in parent.capabilities.items()
        if name not in _NEVER and (kept := _kept(name, grant, tools, profile, known.get(name))) is not None
    }


def _kept(
    name: str,
    grant: CapabilityGrant,
    tools: Collection[str] | None,
    profile: CapabilityProfile,
    known: Mapping[str, ToolEffect] | None,
) -> CapabilityGrant | None:
    if tools is None:
        whole = any(fnmatchcase(name, pattern) for pattern in profile.tools)
    else:
        whole = name in tools
    if whole:
        return grant
    kept = tuple(
        tool
        for tool, effect in _held(grant, known).items()
        if (tool in tools if tools is not None else profile.includes(tool, reads=effect == "reads"))
    )
    return grant.model_copy(update={"tools": kept}) if kept else None


def _held(grant: CapabilityGrant, known: Mapping[str, ToolEffect] | None) -> Mapping[str, ToolEffect]:
    if known is None:
        # Its tools are not known yet, so none can be said to read only.
        return dict.fromkeys(grant.tools or (), "changes")
    return {tool: effect for tool, effect in known.items() if grant.tools is None or tool in grant.tools}
