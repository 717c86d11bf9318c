"""Resolves a request for an orchestration to rows that can be inserted: configuration, model, limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nova_workers.base.errors import InvalidInput
from nova_workers.base.vocabulary import PermissionMode, RunQueue, RunSource
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.http.orchestrations import OrchestrationCreate
from nova_workers.contracts.orchestration import OrchestrationLimits, Origin, SpawnRequest
from nova_workers.contracts.runs import RequestKey
from nova_workers.domain.agents.sql.records import get_agent, get_directory
from nova_workers.domain.orchestrations.rules.config.values import OrchestrationConfig
from nova_workers.domain.orchestrations.rules.models.choice import ModelChooser
from nova_workers.domain.orchestrations.rules.spawning.areas import WorkArea
from nova_workers.domain.orchestrations.rules.spawning.granting import Asked, Giver, check_directory, granted
from nova_workers.domain.orchestrations.rules.spawning.profile import agent_spec
from nova_workers.domain.orchestrations.sql.spawning import NewAgent, NewTree
from nova_workers.ledger.database import Database
from nova_workers.ledger.stored import to_store


@dataclass(frozen=True, slots=True)
class NewOrchestration:
    """A request to start an orchestration.

    Attributes:
        agent_id: The agent whose trust, directories, permissions and daily budget bound the tree.
        limits: None takes those of the configuration.
        origin: The run whose agent starts it; a repeated call finds the first one's orchestration by its key.
        request: A request with a key that was used before returns the first one's orchestration.
        is_external: Its master is a program outside of the fleet, which acts over HTTP.
    """

    tenant_id: str
    agent_id: str
    task: str
    config: OrchestrationConfig = field(default_factory=OrchestrationConfig)
    config_version: int | None = None
    limits: OrchestrationLimits | None = None
    model: str | None = None
    cwd: str | None = None
    queue: RunQueue = "interactive"
    source: RunSource = "api"
    origin: Origin | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    request: RequestKey | None = None
    is_external: bool = False


async def plan_tree(
    database: Database, models: ModelChooser, new: NewOrchestration, directory_of: Callable[[str, str], Path]
) -> NewTree:
    """Return the orchestration of a request, ready to be inserted. Nothing is stored.

    `directory_of` returns the own directory of an agent, by its tenant and the directory's name.

    Raises:
        NotFound: No such agent.
        Gone: The agent was deleted.
        AgentSpawnError: The working directory is not one of the agent's.
        ModelNotAvailableError: See `ModelChooser.choose`.
        ProviderNotAvailableError: See `ModelChooser.choose`.
    """
    async with database.connection() as connection:
        owner = (await get_agent(connection, new.tenant_id, new.agent_id)).spec
        directory = await get_directory(connection, new.tenant_id, new.agent_id)
    chosen = await models.choose(
        new.tenant_id, new.config, role="MASTER", task=new.task, model=new.model, complexity=None
    )
    # A person who starts a tree permits what its master reads. An agent cannot: what it may read after an approval, a
    # master that it starts may read after the same approval.
    mode: PermissionMode = "BYPASS" if new.origin is None else "DELEGATE"
    request = SpawnRequest(new.task, role="MASTER", permission_mode=mode)
    workspace = str(directory_of(new.tenant_id, directory))
    giver = Giver(owner, {}, WorkArea(workspace, workspace, owner.directories))
    profile = new.config.capability_profiles.of("MASTER")
    asked = Asked("MASTER", None, profile, cwd=new.cwd or new.config.defaults.cwd, permission_mode=mode)
    held = granted(giver, asked)
    check_directory(giver, asked, held)
    spec = agent_spec(owner, request, chosen, new.config, held, name="Master")
    origin = new.origin
    master = NewAgent(
        role="MASTER",
        name="Master",
        prompt=new.task,
        spec=to_store(AgentSpec, spec),
        parent_run_id=None if origin is None else origin.run_id,
        tools=spec.native_tools,
        model=spec.model,
        cwd=held.cwd,
        permission_mode=mode,
        category=chosen.category,
        state="RUNNING" if new.is_external else "PENDING",
    )
    return NewTree(
        tenant_id=new.tenant_id,
        agent_id=new.agent_id,
        master=master,
        config=new.config.model_dump(mode="json"),
        config_version=new.config_version,
        limits=(new.limits or limits_of(new.config)).model_dump(mode="json"),
        queue=new.queue,
        source=new.source,
        metadata=new.metadata,
        start_key=None if origin is None else origin.key,
        report_thread_id=None if origin is None else origin.report_thread_id,
        is_external=new.is_external,
    )


def limits_of(config: OrchestrationConfig) -> OrchestrationLimits:
    """Return the limits that a configuration sets."""
    engine = config.engine
    return OrchestrationLimits(
        max_agent_depth=engine.max_agent_depth,
        max_concurrent_agents=engine.max_concurrent_agents,
        agent_timeout_seconds=engine.agent_timeout_seconds,
        tool_call_timeout_seconds=engine.tool_call_timeout_seconds,
        master_idle_seconds=engine.master_idle_seconds,
        token_budget=engine.token_budget,
    )


def narrowed_limits(config: OrchestrationConfig, wanted: OrchestrationCreate) -> OrchestrationLimits:
    """Return the limits of a new orchestration: its own budgets, and bounds that may be lower than the configuration's.

    Raises:
        InvalidInput: A bound is higher than the configuration permits.
    """
    limits = limits_of(config)
    budgets = wanted.model_dump(include={"token_budget", "cost_budget_usd", "time_budget_s"})
    if budgets["token_budget"] is None and budgets["cost_budget_usd"] is None:
        budgets["token_budget"] = limits.token_budget
    bounds = wanted.model_dump(include=set(OrchestrationLimits.model_fields), exclude=set(budgets), exclude_none=True)
    for field_name, bound in bounds.items():
        if bound > (highest := getattr(limits, field_name)):
            raise InvalidInput(
                f"{field_name}: {bound!r} is more than the configuration permits, {highest:g}. Give a lower one, or "
                "change `engine` with PUT /v1/orchestrations/config.",
                field=field_name,
            )
    return limits.model_copy(update={**budgets, **bounds})
