"""The registry: resolves the names in an agent's configuration to the MCP servers of a run."""

import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ValidationError

from nova_workers.base.errors import ConfigurationError, InvalidInput
from nova_workers.base.validation import problem_of
from nova_workers.contracts.agents import AgentSpec, CapabilityGrant
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.engine import InProcessMcpServer, McpServer
from nova_workers.contracts.installs import Installation
from nova_workers.contracts.native import RESERVED_NAMES
from nova_workers.contracts.orchestration import CapabilityTools
from nova_workers.contracts.tool_programs import InstalledAgent, ToolSource
from nova_workers.contracts.user_agents import CODE_ENGINE, AgentProgram, CodeConfig
from nova_workers.contracts.user_tools import ListedTool
from nova_workers.domain.capabilities.rules.seam import (
    BelongsToTenant,
    Capability,
    CapabilityContext,
    ChecksGrants,
    ClientServer,
    ComparesConfigs,
    DeclaredServer,
    HasAgents,
    OffersItself,
    Revealed,
    RevealsSecrets,
    Servable,
    Servers,
    ToolDeclaration,
    UserAgentRun,
    UserServer,
    input_schema,
)
from nova_workers.ledger.database import Connection
from nova_workers.ledger.visibility import bound_tenant


@dataclass(frozen=True, slots=True)
class ToolInfo:
    """The static description of a tool."""

    name: str
    description: str
    idempotent: bool
    read_only: bool
    input_schema: JsonObject


@dataclass(frozen=True, slots=True)
class CapabilityInfo:
    """The static description of a capability."""

    name: str
    description: str
    tools: tuple[ToolInfo, ...]
    config_schema: JsonObject
    injected: bool
    """Whether it is never granted: runs of its kind always have it."""
    open_ended: bool
    """Whether its tools are those of servers in the configuration."""


_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
"""What engines replace in the names of servers."""


class CapabilityRegistry:
    """All capabilities of the process, by name."""

    def __init__(
        self,
        capabilities: Iterable[Capability] = (),
        *,
        serve: Callable[[Servable], Awaitable[McpServer]] | None = None,
        execute: Callable[[UserAgentRun], Awaitable[AgentProgram]] | None = None,
    ) -> None:
        """Register capabilities; `add` registers more.

        Args:
            capabilities: The first ones.
            serve: Makes a server of declared tools (`serving.ToolServer`). None in processes that only describe
                capabilities, such as the API, which then loads no MCP library: `resolve` raises there.
            execute: Makes a program of an agent in Python, likewise.

        Raises:
            ConfigurationError: Two capabilities or two tools have the same name.
        """
        self._capabilities: dict[str, Capability] = {}
        self._serve = serve
        self._execute = execute
        # Protocols are checked once: isinstance takes 10 µs, and a run has a dozen grants.
        self._checks: dict[str, ChecksGrants] = {}
        self._reveals: dict[str, RevealsSecrets] = {}
        self._offers: dict[str, OffersItself] = {}
        self._tenants: dict[str, str] = {}
        """The tenants of capabilities that belong to one."""
        self._tools: set[tuple[str, bool]] = set()
        """Names of tools, and whether their capability is injected."""
        self._secret_tools: list[tuple[str, ToolDeclaration[Any]]] = []
        """The few tools that take secrets, with their capabilities."""
        for capability in capabilities:
            self.add(capability)

    def add(self, capability: Capability) -> None:
        """Register a capability.

        Raises:
            ConfigurationError: Another one has its name, or a tool of the same name; or a tool takes secrets in a
                field that it does not have.
        """
        if capability.name in self._capabilities:
            raise ConfigurationError(f"Two capabilities are called {capability.name!r}; rename one.")
        for tool in capability.tools or ():
            if (tool.name, capability.injected is not None) in self._tools:
                raise ConfigurationError(f"Two tools are called {tool.name!r}; rename one.")
            for field in tool.takes_secrets:
                if field not in tool.input.model_fields:
                    raise ConfigurationError(f"Tool {tool.name!r} takes secrets in {field!r}, and has no such field.")
            self._tools.add((tool.name, capability.injected is not None))
            if tool.takes_secrets:
                self._secret_tools.append((capability.name, tool))
        self._capabilities[capability.name] = capability
        self._sort(capability)

    def _sort(self, capability: Capability) -> None:
        if isinstance(capability, ChecksGrants):
            self._checks[capability.name] = capability
        if isinstance(capability, RevealsSecrets):
            self._reveals[capability.name] = capability
        if isinstance(capability, BelongsToTenant) and capability.tenant_id is not None:
            self._tenants[capability.name] = capability.tenant_id
        if isinstance(capability, OffersItself):
            self._offers[capability.name] = capability

    def discover(self) -> tuple[CapabilityInfo, ...]:
        """Return every capability of the context's tenant with its tools, by name. Starts nothing."""
        return tuple(
            CapabilityInfo(
                name=capability.name,
                description=capability.description,
                tools=tuple(
                    ToolInfo(tool.name, tool.description, tool.is_repeatable, tool.read_only, input_schema(tool.input))
                    for tool in capability.tools or ()
                ),
                config_schema=capability.config.model_json_schema(),
                injected=capability.injected is not None,
                open_ended=capability.tools is None,
            )
            for name, capability in sorted(self._capabilities.items())
            if self._is_visible(name)
        )

    def installation(self) -> Installation:
        """Return the code of users that is installed here."""
        found = (each for _, each in sorted(self._capabilities.items()) if isinstance(each, HasAgents))
        return Installation(tuple(each.installed for each in found))

    def has_tool(self, name: str) -> bool:
        """Return whether a capability that agents may be granted has a tool of this name."""
        return (name, False) in self._tools

    def needing_approval(self, spec: AgentSpec) -> frozenset[str]:
        """Return the tools of an agent that a person approves, by the names that models may see them under."""
        names = (
            (capability.name, tool.name)
            for name in spec.capabilities
            if (capability := self._capabilities.get(name)) is not None
            for tool in capability.tools or ()
            if tool.needs_approval
        )
        # Where another tool of the run has its name, it has that of its server in front.
        return frozenset(given for server, tool in names for given in (tool, _qualified(server, tool)))

    def _is_visible(self, name: str) -> bool:
        tenant_id = bound_tenant()
        return tenant_id is None or self._tenants.get(name, tenant_id) == tenant_id

    def validate(self, spec: AgentSpec) -> None:
        """Check an agent's grants, and the tools of its subagents, when it is written.

        Raises:
            InvalidInput: A capability or tool is unknown, or a configuration has the wrong form.
        """
        for name, grant in spec.capabilities.items():
            self._check(name, grant)
        self._check_subagents(spec)
        if spec.engine == CODE_ENGINE:
            self._user_agent(spec)

    def covers(self, name: str, own: CapabilityGrant, other: CapabilityGrant) -> bool:
        """Return whether a grant of a capability gives all that another one gives. False if that cannot be told."""
        if own.tools is not None and (other.tools is None or not set(other.tools) <= set(own.tools)):
            return False
        try:
            (_, ours), (_, theirs) = self._check(name, own), self._check(name, other)
        except InvalidInput:
            return False
        return ours.includes(theirs) if isinstance(ours, ComparesConfigs) else ours == theirs

    def tool_names(self, spec: AgentSpec) -> set[str] | None:
        """Return the names of the tools of an agent's capabilities; None if it has some whose names are unknown."""
        if any(name not in self._capabilities or self._capabilities[name].tools is None for name in spec.capabilities):
            return None
        return self.declared_names(spec)

    def declared_names(self, spec: AgentSpec) -> set[str]:
        """Return the names of the tools of an agent's capabilities, as far as they are known."""
        found: set[str] = set()
        for name, grant in spec.capabilities.items():
            if name in self._capabilities:
                found.update(self._granted(name, grant))
        return found

    def tool_effects(self) -> CapabilityTools:
        """Return the tools of each capability with what they do; None where its servers alone know them."""
        return {
            name: None if (tools := capability.tools) is None else {tool.name: tool.effect for tool in tools}
            for name, capability in self._capabilities.items()
            if self._is_visible(name)
        }

    def tool_inputs(self, names: Collection[str]) -> tuple[type[BaseModel], ...]:
        """Return the inputs of the tools of these capabilities. Names that are not known are left out."""
        return tuple(
            tool.input
            for name, capability in self._capabilities.items()
            if name in names
            for tool in capability.tools or ()
        )

    def _check_subagents(self, spec: AgentSpec) -> None:
        known = {tool for name, grant in spec.capabilities.items() for tool in self._granted(name, grant)}
        for capability in self._capabilities.values():
            if capability.injected is not None:
                known.update(tool.name for tool in capability.tools or ())
        if any(self._capabilities[name].tools is None for name in spec.capabilities):
            # The tools of external servers are unknown until they answer.
            return
        for name, helper in spec.subagents.items():
            for index, tool in enumerate(helper.tools or ()):
                if tool not in known and tool not in RESERVED_NAMES:
                    field = f"subagents.{name}.tools.{index}"
                    given = ", ".join(sorted(known | RESERVED_NAMES))
                    raise InvalidInput(f"{field}: the agent has no tool {tool!r}. Known: {given}.", field=field)

    def _granted(self, name: str, grant: CapabilityGrant) -> Iterable[str]:
        """Return the names of a valid grant's tools, as far as they are known."""
        declared = tuple(tool.name for tool in self._capabilities[name].tools or ())
        return declared if grant.tools is None else grant.tools

    async def resolve(self, spec: AgentSpec, context: CapabilityContext) -> dict[str, McpServer]:
        """Return the MCP servers of a run by name.

        Injected and offered ones come first, then granted ones in the order of the configuration. Those with unknown
        tools come last: of two tools with the same name the first keeps it, so that an external server cannot replace
        ours.

        Raises:
            InvalidInput: As `validate`; a capability may have been removed since the agent was written.
        """
        declared: dict[str, McpServer] = {}
        open_ended: dict[str, McpServer] = {}
        for name, capability in self._capabilities.items():
            if capability.injected is not None and capability.injected(context):
                resolved = await capability.resolve(capability.config(), context)
                servers = open_ended if capability.tools is None else declared
                servers |= await self._named(name, resolved)
        for name, offer in self._offers.items():
            if offer.is_offered(context):
                capability = self._capabilities[name]
                declared |= await self._named(name, await capability.resolve(capability.config(), context))
        for name, grant in spec.capabilities.items():
            capability, config = self._check(name, grant)
            resolved = await capability.resolve(config, context)
            named = await self._named(name, resolved)
            servers = open_ended if capability.tools is None else declared
            servers |= {key: _only(server, grant) for key, server in named.items()}
        _check_client_tools(context, declared)
        return declared | open_ended

    async def program(self, spec: AgentSpec, context: CapabilityContext) -> AgentProgram:
        """Return the function that an agent of the engine ``code`` names, for one attempt at a turn.

        Raises:
            InvalidInput: As `validate`.
        """
        if self._execute is None:
            raise ConfigurationError("This process describes capabilities and does not execute them.")
        agent, capability = self._user_agent(spec)
        if agent.source.tenant_id not in (None, context.tenant_id):
            raise _no_code(spec.engine_config["agent"])
        grant = spec.capabilities.get(agent.source.name, CapabilityGrant())
        _, config = self._check(agent.source.name, grant)
        secrets = await capability.agent_secrets(config, context.tenant_id)
        return await self._execute(UserAgentRun(agent, context, secrets))

    def _user_agent(self, spec: AgentSpec) -> tuple[InstalledAgent, HasAgents]:
        try:
            config = CodeConfig.model_validate(spec.engine_config)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False)[0]
            where = ".".join(["engine_config", *(str(part) for part in first["loc"])])
            raise InvalidInput(f"{where}: {problem_of(first, CodeConfig)}", field=where) from error
        field = "engine_config.agent"
        source, _, function = config.agent.rpartition(":")
        for name in (f"project:{source}", source):
            capability = self._capabilities.get(name)
            if isinstance(capability, HasAgents) and self._is_visible(name):
                return replace(capability.agent(function, field), on_new_version=config.on_new_version), capability
        raise _no_code(config.agent)

    def evaluator(self, function: str, tenant_id: str) -> tuple[ToolSource, ListedTool] | None:
        """Return an evaluator in Python with its process; None if this tenant has none here.

        Args:
            function: Such as ``shop:polite``, of a project or a package.
            tenant_id: Whose project it may be.
        """
        source, _, name = function.rpartition(":")
        for capability_name in (f"project:{source}", source):
            capability = self._capabilities.get(capability_name)
            if isinstance(capability, HasAgents) and self._tenants.get(capability_name, tenant_id) == tenant_id:
                return capability.evaluator(name)
        return None

    async def _named(self, name: str, resolved: Servers) -> Mapping[str, McpServer]:
        # First what most capabilities have, as a check for a `Mapping` takes longer.
        if isinstance(resolved, DeclaredServer | ClientServer | UserServer):
            if self._serve is None:
                raise ConfigurationError("This process describes capabilities and does not serve them.")
            return {name: await self._serve(resolved)}
        return resolved if isinstance(resolved, Mapping) else {name: resolved}

    async def revealed(self, connection: Connection, spec: AgentSpec, tenant_id: str) -> tuple[Revealed, ...]:
        """Return the secrets that a run of this agent may see. No query if no capability reveals any.

        Raises:
            InvalidInput: As `validate`.
        """
        found: list[Revealed] = []
        for name, grant in spec.capabilities.items():
            if name in self._reveals:
                _, config = self._check(name, grant)
                found.append(await self._reveals[name].revealed(connection, tenant_id, config, grant.tools))
        return tuple(found)

    def config_type(self, name: str) -> type[BaseModel] | None:
        """Return the model of a capability's configuration; None if there is no such capability."""
        capability = self._capabilities.get(name)
        return None if capability is None else capability.config

    def config_of(self, name: str, grant: CapabilityGrant) -> BaseModel | None:
        """Return the configuration of a grant; None if it is not valid any more, so that what it gives is unknown."""
        try:
            return self._check(name, grant)[1]
        except InvalidInput:
            return None

    def reveals(self, spec: AgentSpec) -> bool:
        """Return whether a run of this agent may handle secrets: read them, or pass new ones to a tool."""
        return not self._reveals.keys().isdisjoint(spec.capabilities) or bool(self.secret_fields(spec))

    def secret_fields(self, spec: AgentSpec) -> dict[str, tuple[str, ...]]:
        """Return the tools of an agent that take secrets, with the fields of their input that contain them."""
        return {
            tool.name: tool.takes_secrets for name, tool in self._secret_tools if self._may_have(spec, name, tool.name)
        }

    def _may_have(self, spec: AgentSpec, name: str, tool: str) -> bool:
        if self._capabilities[name].injected is not None:
            return True
        grant = spec.capabilities.get(name)
        return grant is not None and (grant.tools is None or tool in grant.tools)

    def _check(self, name: str, grant: CapabilityGrant) -> tuple[Capability, BaseModel]:
        field = f"capabilities.{name}"
        capability = self._capabilities.get(name)
        if capability is None or capability.injected is not None or not self._is_visible(name):
            granted = (key for key, found in self._capabilities.items() if found.injected is None)
            known = ", ".join(sorted(filter(self._is_visible, granted)))
            raise InvalidInput(f"{field}: there is no capability {name!r}. Known: {known}.", field=field)
        if grant.tools and capability.tools is not None:
            declared = [tool.name for tool in capability.tools]
            for tool in grant.tools:
                if tool not in declared:
                    raise InvalidInput(
                        f"{field}.tools: {name} has no tool {tool!r}. It has {', '.join(declared)}.",
                        field=f"{field}.tools",
                    )
        config = _parse(capability, grant, f"{field}.config")
        if name in self._checks:
            self._checks[name].check_grant(config, f"{field}.config")
        return capability, config


def _no_code(agent: str) -> InvalidInput:
    field = "engine_config.agent"
    return InvalidInput(
        f"{field}: there is no code {agent.rpartition(':')[0]!r} for {agent!r}; expected a project or an installed "
        "package, and the name of a function in it, as in 'shop:triage'.",
        field=field,
    )


def _check_client_tools(context: CapabilityContext, servers: Mapping[str, McpServer]) -> None:
    """Refuse tools of the caller that have the name of another tool of the run.

    They were compared with the agent when the run was accepted, which may have been given others since then.

    Raises:
        InvalidInput: There is one.
    """
    if not context.client_tools:
        return
    names = {
        str(tool.name)
        for server in servers.values()
        if isinstance(server, InProcessMcpServer)
        for tool in server.listing or ()
        if server.tools is None or tool.name in server.tools
    }
    for index, tool in enumerate(context.client_tools):
        if tool.name in names:
            field = f"client_tools.{index}.name"
            raise InvalidInput(f"{field}: the agent has a tool {tool.name!r} of its own by now.", field=field)


def _qualified(server: str, tool: str) -> str:
    return f"{_NOT_IN_NAMES.sub('_', server)}__{tool}"


def _only(server: McpServer, grant: CapabilityGrant) -> McpServer:
    """Return the server with the tools of the grant only, whatever the capability allows."""
    if grant.tools is None:
        return server
    tools = grant.tools if server.tools is None else tuple(tool for tool in server.tools if tool in grant.tools)
    return replace(server, tools=tools)


def _parse(capability: Capability, grant: CapabilityGrant, field: str) -> BaseModel:
    try:
        return capability.config.model_validate(grant.config)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join([field, *(str(part) for part in first["loc"])])
        words = problem_of(first, capability.config)
        raise InvalidInput(f"{where}: {words}; got {first['input']!r}.", field=where) from error
