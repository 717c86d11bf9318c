"""The ceilings of a tenant over documents that steer its agents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nova_workers.base.errors import Forbidden
from nova_workers.contracts.agents import AgentSpec, Ceilings
from nova_workers.domain.agents.rules.ceilings import CeilingRules
from nova_workers.domain.orchestrations.rules.config.parsing import parse_config
from tests.support.harness.grants import all_grants

RULES = CeilingRules(Path("/srv/nova/workspace"), "anthropic")
GRANTS = all_grants()


def _spec(**fields: Any) -> AgentSpec:
    return AgentSpec.model_validate({"name": "Clerk", **fields})


def _server(command: str, **fields: Any) -> dict[str, Any]:
    server = {"type": "stdio", "command": command, **fields}
    return {"capabilities": {"mcp": {"config": {"servers": {"tools": server}}}}}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"trust": "unrestricted"}, "trust"),
        ({"engine": "scripted"}, "engine"),
        ({"directories": ["/"]}, "directories.0"),
        ({"directories": ["/srv/acme/in", "/srv/acme-other"]}, "directories.1"),
        ({"directories": ["/srv/acme/../nova"]}, "directories.0"),
        ({"directories": ["/srv/nova/workspace/ten_2"]}, "directories.0"),
        (_server("npx", args=["server"]), "capabilities.mcp.config.servers.tools.command"),
        (_server("acme-tools", cwd="/etc"), "capabilities.mcp.config.servers.tools.cwd"),
    ],
)
def test_what_exceeds_a_ceiling_is_refused_with_the_field(fields: dict[str, Any], named: str) -> None:
    ceilings = Ceilings(directories=("/srv/acme",), mcp_commands=("acme-*",))
    with pytest.raises(Forbidden) as caught:
        RULES.check("ten_1", _spec(**fields), ceilings, grants=GRANTS)
    assert caught.value.fields["field"] == named
    assert "nova tenants ceilings" in caught.value.message
    RULES.check("ten_1", _spec(**fields), None)


@pytest.mark.parametrize(
    "fields",
    [
        {"trust": "controlled", "directories": ["/srv/acme", "/srv/acme/in", "/srv/nova/workspace/ten_1/clerk"]},
        {"engine": "openai"},
        _server("acme-tools", cwd="/srv/acme"),
    ],
)
def test_what_is_within_the_ceilings_is_permitted(fields: dict[str, Any]) -> None:
    ceilings = Ceilings(directories=("/srv/acme",), mcp_commands=("acme-*",))
    RULES.check("ten_1", _spec(**fields), ceilings, grants=GRANTS)


def test_only_named_engines_are_permitted_if_any_are_named() -> None:
    ceilings = Ceilings(engines=("openai",))
    RULES.check("ten_1", _spec(engine="openai"), ceilings)
    with pytest.raises(Forbidden, match="'anthropic' is not among the engines of its tenant: openai"):
        RULES.check("ten_1", _spec(), ceilings)


def test_a_working_directory_of_an_orchestration_obeys_the_ceilings() -> None:
    with pytest.raises(Forbidden, match="cwd"):
        RULES.check("ten_1", _spec(), Ceilings(), cwd="/root")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("providers: {mine: {engine: scripted}}", "providers.mine.engine"),
        ("defaults: {cwd: /etc}", "defaults.cwd"),
        ("experts: {fixer: {system_prompt: x, cwd: /etc}}", "experts.fixer.cwd"),
        ("plugins: {tools: {type: stdio, command: npx}}", "plugins.tools.command"),
        ("plugins: {tools: {type: stdio, command: acme-tools, cwd: /etc}}", "plugins.tools.cwd"),
        (
            "experts: {fixer: {system_prompt: x, mcp_servers: {tools: {type: stdio, command: npx}}}}",
            "experts.fixer.mcp_servers.tools.command",
        ),
    ],
)
def test_a_configuration_of_orchestrations_obeys_the_ceilings(text: str, named: str) -> None:
    with pytest.raises(Forbidden) as caught:
        RULES.check("ten_1", parse_config(text), Ceilings(mcp_commands=("acme-*",)))
    assert caught.value.fields["field"] == named
