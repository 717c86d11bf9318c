"""Resolves what an agent asks of a child: model, plugins, expert, configuration. Before the tree is locked."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.mcp.servers import McpServerForm
from nova_workers.contracts.orchestration import SpawnRequest, is_peer
from nova_workers.errors import AgentSpawnError, ExpertNotFoundError
from nova_workers.ledger.orchestrations.locking import LockedTree
from nova_workers.orchestration.config.plugins import resolve_plugins
from nova_workers.orchestration.config.values import ExpertProfile, OrchestrationConfig
from nova_workers.orchestration.models.choosing import ChosenModel, ModelChooser
from nova_workers.orchestration.spawning.granting import CapabilityTools, Granted, check_tools, granted
from nova_workers.orchestration.spawning.profile import agent_spec, check_cwd, check_output_schema
from nova_workers.vocabulary import PermissionMode

__all__ = ["PreparedSpawn", "prepare_spawn"]


@dataclass(frozen=True, slots=True)
class PreparedSpawn:
    """A spawn request with everything resolved that needs no lock."""

    request: SpawnRequest
    spec: AgentSpec
    chosen: ChosenModel
    plugins: tuple[str, ...]
    name: str


@dataclass(frozen=True, slots=True)
class Giver:
    """What a child gets at most.

    Attributes:
        spec: Whose tools: the parent's configuration, of a master's children that of the orchestration's agent.
        permission_mode: The parent's.
        plugins: Those that the parent has; None: all, since the parent is a master.
        known: All capabilities.
    """

    spec: AgentSpec
    permission_mode: PermissionMode
    plugins: frozenset[str] | None
    known: CapabilityTools


async def prepare_spawn(
    models: ModelChooser,
    tree: LockedTree,
    owner: AgentSpec,
    config: OrchestrationConfig,
    request: SpawnRequest,
    *,
    giver: Giver,
) -> PreparedSpawn:
    """Return a spawn request with everything resolved.

    Args:
        models: Chooses the model.
        tree: The orchestration.
        owner: The configuration that bounds the tree.
        config: Of the orchestration.
        request: What the parent asks for.
        giver: The parent, which bounds what the child holds.

    Raises:
        AgentSpawnError: The request is refused.
        ExpertNotFoundError: There is no such expert.
        ModelNotAvailableError: See `ModelChooser.choose`.
        ProviderNotAvailableError: See `ModelChooser.choose`.
    """
    expert = _expert(config, request.expert_id)
    if expert is not None:
        # What its profile names and the parent does not hold it does not get; that is no fault of the request.
        request = replace(request, permission_mode=expert.permission_mode, cwd=expert.cwd, tools=expert.tools)
    elif request.tools is not None:
        check_tools(giver.spec, request.tools, giver.known)
    if giver.permission_mode == "PLAN":
        # Otherwise an agent that may only read would write through a child.
        request = replace(request, permission_mode="PLAN")
    check_cwd(owner, request.cwd)
    check_output_schema(request.output_schema)
    chosen = await models.choose(
        tree.tenant_id,
        config,
        role=request.role,
        task=request.prompt,
        model=request.model or (None if expert is None else expert.model),
        complexity=request.complexity,
    )
    servers = (
        {}
        if is_peer(request.role, request.expert_id)
        else resolve_plugins(
            config.plugins,
            role=request.role,
            prompt=request.prompt,
            mcp_servers=_named_servers(config, expert, request, giver),
            exclude_plugins=(*request.exclude_plugins, *(() if expert is None else expert.exclude_plugins)),
        )
    )
    servers = {name: server for name, server in servers.items() if _may_have(name, expert, giver)}
    name = request.name or (None if expert is None else expert.name or expert.expert_id)
    name = name or request.role.capitalize()
    held = (
        Granted((), {})
        if is_peer(request.role, request.expert_id)
        else granted(giver.spec, request.role, request.tools, config.capability_profiles.of(request.role), giver.known)
    )
    spec = agent_spec(owner, request, chosen, config, held, name=name, servers=servers, expert=expert)
    return PreparedSpawn(request, spec, chosen, tuple(sorted(servers)), name)


def _expert(config: OrchestrationConfig, expert_id: str | None) -> ExpertProfile | None:
    if expert_id is None:
        return None
    expert = config.experts.get(expert_id)
    if expert is None:
        known = ", ".join(sorted(config.experts)) or "none are configured"
        raise ExpertNotFoundError(f"There is no expert {expert_id!r}. Known: {known}.", expert_id=expert_id)
    return expert


def _named_servers(
    config: OrchestrationConfig, expert: ExpertProfile | None, request: SpawnRequest, giver: Giver
) -> dict[str, McpServerForm] | None:
    """Return the servers that a request or an expert names; None if neither names any."""
    named = {} if expert is None else dict(expert.mcp_servers)
    for name in request.mcp_servers or ():
        plugin = config.plugins.get(name)
        if plugin is None:
            known = ", ".join(sorted(config.plugins)) or "none are configured"
            raise AgentSpawnError(f"mcp_servers: there is no plugin {name!r}. Known: {known}.")
        if not _may_have(name, expert, giver):
            held = ", ".join(sorted(giver.plugins or ())) or "none"
            raise AgentSpawnError(f"mcp_servers: you have no plugin {name!r} that you could give. Yours: {held}.")
        named[name] = plugin
    return named if named or request.mcp_servers is not None else None


def _may_have(name: str, expert: ExpertProfile | None, giver: Giver) -> bool:
    """Return whether a child may have a server: one of its parent's plugins, or what the expert's profile gives."""
    return giver.plugins is None or name in giver.plugins or (expert is not None and name in expert.mcp_servers)
