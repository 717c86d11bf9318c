"""Resolves what an agent asks of a child: model, plugins, expert, configuration. Before the tree is locked."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nova_workers.base.errors import AgentSpawnError, ExpertNotFoundError
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.mcp.servers import McpServerForm
from nova_workers.contracts.orchestration import SpawnRequest, is_peer
from nova_workers.domain.orchestrations.rules.config.plugins import resolve_plugins
from nova_workers.domain.orchestrations.rules.config.values import ExpertProfile, OrchestrationConfig
from nova_workers.domain.orchestrations.rules.models.choice import ChosenModel, ModelChooser
from nova_workers.domain.orchestrations.rules.spawning.granting import (
    Asked,
    Giver,
    Granted,
    check_directory,
    check_tools,
    granted,
)
from nova_workers.domain.orchestrations.rules.spawning.profile import agent_spec, check_output_schema
from nova_workers.domain.orchestrations.sql.locking import LockedTree


@dataclass(frozen=True, slots=True)
class PreparedSpawn:
    """A spawn request with everything resolved that needs no lock.

    Attributes:
        held: What a fresh child holds.
        spec: Its configuration.
        giver: The parent, which bounds that.
    """

    request: SpawnRequest
    held: Granted
    spec: AgentSpec
    chosen: ChosenModel
    name: str
    giver: Giver


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
        request = replace(request, permission_mode=expert.permission_mode, cwd=expert.cwd, tools=expert.tools)
    asked = Asked(
        request.role,
        request.tools,
        config.capability_profiles.of(request.role),
        _servers(config, expert, request, giver),
        request.cwd,
        request.permission_mode,
    )
    held = granted(giver, asked)
    if expert is None:
        # What the profile of an expert names and the parent does not hold, it goes without: no fault of the request.
        check_tools(giver, request.tools or ())
        check_directory(giver, asked, held)
    check_output_schema(request.output_schema)
    chosen = await models.choose(
        tree.tenant_id,
        config,
        role=request.role,
        task=request.prompt,
        model=request.model or (None if expert is None else expert.model),
        complexity=request.complexity,
    )
    name = request.name or (None if expert is None else expert.name or expert.expert_id)
    name = name or request.role.capitalize()
    spec = agent_spec(owner, request, chosen, config, held, name=name, expert=expert)
    return PreparedSpawn(request, held, spec, chosen, name, giver)


def _expert(config: OrchestrationConfig, expert_id: str | None) -> ExpertProfile | None:
    if expert_id is None:
        return None
    expert = config.experts.get(expert_id)
    if expert is None:
        known = ", ".join(sorted(config.experts)) or "none are configured"
        raise ExpertNotFoundError(f"There is no expert {expert_id!r}. Known: {known}.", expert_id=expert_id)
    return expert


def _servers(
    config: OrchestrationConfig, expert: ExpertProfile | None, request: SpawnRequest, giver: Giver
) -> dict[str, McpServerForm]:
    """Return the servers that a child is to get: plugins, and those of an expert's profile.

    Raises:
        AgentSpawnError: The request names a plugin that there is not, or that the parent does not have.
    """
    if is_peer(request.role, request.expert_id):
        return {}
    named = {} if expert is None else dict(expert.mcp_servers)
    for name in request.mcp_servers or ():
        plugin = config.plugins.get(name)
        if plugin is None:
            known = ", ".join(sorted(config.plugins)) or "none are configured"
            raise AgentSpawnError(f"mcp_servers: there is no plugin {name!r}. Known: {known}.")
        if not giver.may_give(name, plugin):
            held = ", ".join(sorted(giver.servers or ())) or "none"
            raise AgentSpawnError(f"mcp_servers: you have no plugin {name!r} that you could give. Yours: {held}.")
        named[name] = plugin
    return resolve_plugins(
        config.plugins,
        role=request.role,
        prompt=request.prompt,
        mcp_servers=named if named or request.mcp_servers is not None else None,
        exclude_plugins=(*request.exclude_plugins, *(() if expert is None else expert.exclude_plugins)),
    )
