"""What an agent of an orchestration is, from its owner and the model that was chosen."""

from __future__ import annotations

import pytest

from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.orchestration import SpawnRequest
from nova_workers.domain.orchestrations.rules.config.values import OrchestrationConfig
from nova_workers.domain.orchestrations.rules.models.choice import ChosenModel
from nova_workers.domain.orchestrations.rules.spawning.granting import Granted
from nova_workers.domain.orchestrations.rules.spawning.profile import agent_spec

OWNER = AgentSpec(name="Owner", temperature=0.5, engine_config={"kept": 1})


def spec(chosen: ChosenModel) -> AgentSpec:
    return agent_spec(OWNER, SpawnRequest("Do it."), chosen, OrchestrationConfig(), Granted(), name="Child")


def test_without_an_effort_the_owner_decides() -> None:
    found = spec(ChosenModel("x", "anthropic"))
    assert (found.model, found.engine, found.temperature, found.thinking_budget_tokens) == ("x", "anthropic", 0.5, None)


def test_the_engine_openai_gets_the_effort_as_it_is() -> None:
    found = spec(ChosenModel("openai/x", "openai", reasoning_effort="xhigh"))
    assert found.engine_config == {"kept": 1, "reasoning_effort": "xhigh"}
    assert (found.thinking_budget_tokens, found.temperature) == (None, 0.5)


@pytest.mark.parametrize("engine", ["anthropic", "claude_agent"])
def test_other_engines_get_a_budget_and_no_temperature(engine: str) -> None:
    found = spec(ChosenModel("x", engine, reasoning_effort="high"))
    assert (found.thinking_budget_tokens, found.temperature, found.engine_config) == (32_768, None, {"kept": 1})
    none = spec(ChosenModel("x", engine, reasoning_effort="none"))
    assert (none.thinking_budget_tokens, none.temperature) == (None, 0.5)
