"""Resolves what an agent asks of a child: model, plugins, expert, configuration. Before the tree is locked."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.mcp.servers import McpServerForm
from nova_workers.contracts.native import native_tools
from nova_workers.contracts.orchestration import SpawnRequest
from nova_workers.errors import AgentSpawnError, ExpertNotFoundError
from nova_workers.ledger.orchestrations.locking import LockedTree
from nova_workers.orchestration.config.plugins import resolve_plugins
from nova_workers.orchestration.config.values import ExpertProfile, OrchestrationConfig
from nova_workers.orchestration.models.choosing import ChosenModel, ModelChooser
from nova_workers.orchestration.profile import agent_spec, check_cwd, check_tools, is_peer
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


async def prepare_spawn(
    models: ModelChooser,
    tree: LockedTree,
    owner: AgentSpec,
    config: OrchestrationConfig,
    request: SpawnRequest,
    *,
    parent_mode: PermissionMode,
) -> PreparedSpawn:
    """Return a spawn request with everything resolved.

    Args:
        models: Chooses the model.
        tree: The orchestration.
        owner: The configuration that bounds the tree.
        config: Of the orchestration.
        request: What the parent asks for.
        parent_mode: The parent's permission mode.

    Raises:
        AgentSpawnError: The request is refused.
        ExpertNotFoundError: There is no such expert.
        ModelNotAvailableError: See `ModelChooser.choose`.
        ProviderNotAvailableError: See `ModelChooser.choose`.
    """
    expert = _expert(config, request.expert_id)
    if expert is not None:
        request = replace(
            request, permission_mode=expert.permission_mode, cwd=expert.cwd, tools=_expert_tools(owner, expert)
        )
    if parent_mode == "PLAN":
        # Otherwise an agent that may only read would write through a child.
        request = replace(request, permission_mode="PLAN")
    check_tools(owner, request.tools)
    check_cwd(owner, request.cwd)
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
        if is_peer(request)
        else resolve_plugins(
            config.plugins,
            role=request.role,
            prompt=request.prompt,
            mcp_servers=_named_servers(config, expert, request),
            exclude_plugins=(*request.exclude_plugins, *(() if expert is None else expert.exclude_plugins)),
        )
    )
    name = request.name or (None if expert is None else expert.name or expert.expert_id)
    name = name or request.role.capitalize()
    spec = agent_spec(owner, request, chosen, config, name=name, servers=servers, expert=expert)
    return PreparedSpawn(request, spec, chosen, tuple(sorted(servers)), name)


def _expert(config: OrchestrationConfig, expert_id: str | None) -> ExpertProfile | None:
    if expert_id is None:
        return None
    expert = config.experts.get(expert_id)
    if expert is None:
        known = ", ".join(sorted(config.experts)) or "none are configured"
        raise ExpertNotFoundError(f"There is no expert {expert_id!r}. Known: {known}.", expert_id=expert_id)
    return expert


def _expert_tools(owner: AgentSpec, expert: ExpertProfile) -> tuple[str, ...] | None:
    """Return the native tools of an expert that the owner's trust permits; None for those of its role."""
    if expert.tools is None:
        return None
    return tuple(tool for tool in native_tools(owner.trust, owner.native_tools) if tool in expert.tools)


def _named_servers(
    config: OrchestrationConfig, expert: ExpertProfile | None, request: SpawnRequest
) -> dict[str, McpServerForm] | None:
    """Return the servers that a request or an expert names; None if neither names any."""
    named = {} if expert is None else dict(expert.mcp_servers)
    for name in request.mcp_servers or ():
        plugin = config.plugins.get(name)
        if plugin is None:
            known = ", ".join(sorted(config.plugins)) or "none are configured"
            raise AgentSpawnError(f"mcp_servers: there is no plugin {name!r}. Known: {known}.")
        named[name] = plugin
    return named if named or request.mcp_servers is not None else None
