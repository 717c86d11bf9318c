"""Warnings about what a configuration may have, and the fleet has not."""

from __future__ import annotations

from typing import Any

import pytest

from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.http.orchestration_config import OrchestrationModelView
from nova_workers.domain.agents.rules.lints import lint_spec


def _model(model_id: str, *names: str, unavailable: str | None = None) -> OrchestrationModelView:
    return OrchestrationModelView(
        model_id=model_id,
        provider="anthropic",
        names=list(names),
        tier="strong",
        cost_factor=1,
        speed_factor=1,
        source="installed",
        enabled=True,
        permitted=True,
        unavailable=unavailable,
        scores=[],
    )


_MODELS = [
    _model("claude-opus-4-5", "opus"),
    _model("claude-opus-4-8", "newest"),
    _model("gpt-9", unavailable="no worker has its key"),
]
_SERVER = {"type": "http", "url": "https://example.org/mcp", "headers": {"Authorization": "Bearer ${secret:TOKEN}"}}


def _warned(spec: dict[str, Any], *, secrets: tuple[str, ...] | None = ()) -> dict[str, str]:
    read = AgentSpec.model_validate({"name": "Clerk", **spec})
    found = lint_spec(read, default_engine="anthropic", models=_MODELS, secrets=secrets)
    return {warning.field: warning.message for warning in found}


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"model": "opus", "temperature": 0.5},
        {"temperature": 0.5},
        {"engine": "scripted", "model": "whatever"},
        {"engine": "codex", "model": "its-own"},
    ],
)
def test_nothing_is_said_of_what_works(spec: dict[str, Any]) -> None:
    assert _warned(spec) == {}


def test_a_model_that_no_list_has_and_one_without_a_provider_are_named() -> None:
    helper = {"description": "Reads.", "prompt": "Read.", "model": "claude-opsu-4-5"}
    assert _warned({"model": "gpt-9", "subagents": {"reader": helper}}) == {
        "model": "Its provider cannot be used now: no worker has its key",
        "subagents.reader.model": "No list of this fleet has the model 'claude-opsu-4-5'. "
        "Did you mean 'claude-opus-4-5'?",
    }


@pytest.mark.parametrize("model", ["claude-opus-4-8", "newest"])
def test_a_temperature_is_named_that_the_model_does_not_take(model: str) -> None:
    assert list(_warned({"model": model, "temperature": 0.5})) == ["temperature"]


def test_secrets_that_are_missing_are_named_to_keys_that_may_know_it() -> None:
    spec = {"capabilities": {"mcp": {"config": {"servers": {"tracker": _SERVER}}}}}
    assert "no secret TOKEN" in _warned(spec)["capabilities.mcp.config"]
    assert _warned(spec, secrets=("TOKEN",)) == {}
    assert _warned(spec, secrets=None) == {}
