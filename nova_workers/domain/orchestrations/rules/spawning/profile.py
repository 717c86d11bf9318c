"""The configuration of an agent of an orchestration, derived from the agent that the orchestration runs under. Pure.

That agent bounds the tree: no agent of it has more trust, other directories or other permissions.
"""

from __future__ import annotations

from collections.abc import Mapping

from nova_workers.base.errors import AgentSpawnError
from nova_workers.base.json_schemas import schema_problem
from nova_workers.base.vocabulary import ReasoningEffort
from nova_workers.contracts.agents import AgentSpec, CapabilityGrant
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.mcp.servers import MCP_CAPABILITY
from nova_workers.contracts.orchestration import SpawnRequest, is_peer
from nova_workers.domain.orchestrations.rules.config.values import ExpertProfile, OrchestrationConfig
from nova_workers.domain.orchestrations.rules.models.choice import ChosenModel
from nova_workers.domain.orchestrations.rules.spawning.granting import Granted
from nova_workers.domain.prompts.rules.orchestration import expert_words, master_words, role_words

_EFFORT_ENGINES = frozenset({"codex", "openai"})
"""Engines that take the effort by its name."""
_THINKING_TOKENS: Mapping[ReasoningEffort, int | None] = {
    "none": None,
    "minimal": 1_024,
    "low": 4_096,
    "medium": 16_384,
    "high": 32_768,
    "xhigh": 65_536,
    "max": 131_072,
}
"""Low and medium as the engine `openai` translates budgets in the other direction."""


def agent_spec(
    owner: AgentSpec,
    request: SpawnRequest,
    chosen: ChosenModel,
    config: OrchestrationConfig,
    held: Granted,
    *,
    name: str,
    expert: ExpertProfile | None = None,
) -> AgentSpec:
    """Return the configuration that the agent's runs use.

    Its tools are those of `held`, and the question to a person. Those of orchestrations come with its place in the
    tree.
    """
    capabilities = dict(held.capabilities)
    if request.role != "EXPERT":
        capabilities["user"] = CapabilityGrant(tools=("ask_user",))
    if held.servers:
        capabilities[MCP_CAPABILITY] = CapabilityGrant(config={"servers": dict(held.servers)})
    return owner.model_copy(
        update={
            "name": name,
            "description": "",
            "identity": owner.identity if expert is None else expert.system_prompt,
            "instructions": _instructions(owner, request, config),
            "responsibilities": (),
            "capabilities": capabilities,
            "native_tools": held.native,
            "skills": () if is_peer(request.role, request.expert_id) else owner.skills,
            "model": chosen.model or owner.model,
            "engine": chosen.engine or owner.engine,
            **_reasoning(owner, chosen),
            "subagents": {},
            "output_schema": request.output_schema,
            "retention": None,
            "max_running": None,
            "max_cost_usd_per_day": None,
        }
    )


def _reasoning(owner: AgentSpec, chosen: ChosenModel) -> dict[str, object]:
    """Return the fields that ask for a reasoning effort. Other engines take a budget of tokens."""
    effort = chosen.reasoning_effort
    if effort is None:
        return {}
    if chosen.engine in _EFFORT_ENGINES:
        return {"engine_config": {**owner.engine_config, "reasoning_effort": effort}, "thinking_budget_tokens": None}
    budget_tokens = _THINKING_TOKENS[effort]
    # A model that thinks takes no temperature.
    temperature = owner.temperature if budget_tokens is None else None
    return {"thinking_budget_tokens": budget_tokens, "temperature": temperature}


def expert_descriptions(config: OrchestrationConfig) -> dict[str, str]:
    """Return the experts of a configuration by id, with what each is for."""
    return {key: expert.description or expert.name or key for key, expert in config.experts.items()}


def check_output_schema(schema: JsonObject | None) -> None:
    """Check the schema of a child's result.

    Raises:
        AgentSpawnError: It is no JSON schema.
    """
    problem = None if schema is None else schema_problem(schema, "output_schema")
    if problem is not None:
        raise AgentSpawnError(f"{problem[0]}: {problem[1]}.")


def _instructions(owner: AgentSpec, request: SpawnRequest, config: OrchestrationConfig) -> str:
    experts = expert_descriptions(config)
    if request.role == "MASTER":
        words = master_words(experts)
    elif request.role == "EXPERT":
        return role_words(request.role)
    else:
        own = role_words(request.role, answers=request.output_schema is not None)
        words = "\n\n".join(filter(None, (own, expert_words(experts))))
    return "\n\n".join(filter(None, (owner.instructions, words)))
