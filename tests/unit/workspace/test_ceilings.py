"""The ceilings of a tenant, and what a key without the scope `trust` may give an agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nova_workers.contracts.agents import AgentSpec, Ceilings
from nova_workers.errors import Forbidden
from nova_workers.workspace.agents.ceilings import AuthorRights, CeilingRules, GrantedSecrets, check_author
from tests.requirements import proves

RULES = CeilingRules(Path("/srv/nova/workspace"), "anthropic")


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
        RULES.check("ten_1", _spec(**fields), ceilings)
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
    RULES.check("ten_1", _spec(**fields), Ceilings(directories=("/srv/acme",), mcp_commands=("acme-*",)))


def test_only_named_engines_are_permitted_if_any_are_named() -> None:
    ceilings = Ceilings(engines=("openai",))
    RULES.check("ten_1", _spec(engine="openai"), ceilings)
    with pytest.raises(Forbidden, match="'anthropic' is not among the engines of its tenant: openai"):
        RULES.check("ten_1", _spec(), ceilings)


def test_a_working_directory_of_an_orchestration_obeys_the_ceilings() -> None:
    with pytest.raises(Forbidden, match="cwd"):
        RULES.check("ten_1", _spec(), Ceilings(), cwd="/root")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, {"trust": "unrestricted"}),
        ({"trust": "controlled"}, {"trust": "unrestricted"}),
        (None, {"directories": ["/srv"]}),
        ({"directories": ["/srv/acme"]}, {"directories": ["/srv/acme", "/srv"]}),
        ({"trust": "unrestricted"}, {"trust": "unrestricted", "instructions": "Obey me."}),
        ({"trust": "unrestricted", "permissions": {"unlisted_commands": "ask"}}, {"trust": "unrestricted"}),
        ({"directories": ["/srv"]}, {"directories": ["/srv"], "identity": "Mine."}),
    ],
)
def test_more_trust_and_directories_and_what_is_done_with_them_need_the_scope(
    before: dict[str, Any] | None, after: dict[str, Any]
) -> None:
    with pytest.raises(Forbidden) as caught:
        check_author(AuthorRights(), None if before is None else _spec(**before), _spec(**after))
    assert caught.value.fields["needed"] == "trust"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, {"trust": "controlled"}),
        ({"trust": "sandbox"}, {"trust": "controlled"}),
        ({"trust": "unrestricted"}, {"trust": "unrestricted", "description": "new"}),
        ({"directories": ["/srv/acme"]}, {"directories": ["/srv/acme/in"]}),
        ({"trust": "unrestricted"}, {"trust": "controlled", "instructions": "Be brief."}),
        ({"trust": "controlled"}, {"trust": "controlled", "instructions": "Be brief."}),
    ],
)
def test_what_an_agent_has_already_needs_no_scope(before: dict[str, Any] | None, after: dict[str, Any]) -> None:
    check_author(AuthorRights(), None if before is None else _spec(**before), _spec(**after))


_STEERING: dict[str, Any] = {
    "name": "Clerk. Obey letters",
    "identity": "Mine.",
    "instructions": "Obey me.",
    "responsibilities": [{"title": "Letters", "content": "Obey them."}],
    "capabilities": {"notes": {}},
    "skills": ["pdf"],
    "native_tools": ["Bash"],
    "permissions": {"unlisted_commands": "ask"},
    "model": "haiku",
    "engine": "openai",
    "engine_config": {"a": 1},
    "subagents": {"helper": {"description": "x", "prompt": "Obey me."}},
    "output_schema": {"type": "object", "description": "Obey me."},
}
_HARMLESS: dict[str, Any] = {
    "description": "new",
    "max_turns": 3,
    "max_tokens": 1_000,
    "temperature": 0.5,
    "thinking_budget_tokens": 2_000,
    "token_budget": 1_000,
    "cost_budget_usd": 1,
    "timeout_s": 60,
    "max_running": 1,
    "max_cost_usd_per_day": 1.0,
    "retention": {"after_days": 1, "keep": "none"},
}


@proves("ceilings.scope", "ceilings.secrets")
def test_every_field_that_reaches_an_agent_s_prompt_or_tools_is_written_with_its_rights_only() -> None:
    assert {*_STEERING, *_HARMLESS, "trust", "directories"} == set(AgentSpec.model_fields)
    shell = {"trust": "unrestricted"}
    for fields in _HARMLESS.items():
        check_author(AuthorRights(), _spec(**shell), _spec(**shell, **dict([fields])), GrantedSecrets({"*"}, {"*"}))
    for field, value in _STEERING.items():
        for rights, needed in ((AuthorRights(secrets=True), "trust"), (AuthorRights(trust=True), "secrets")):
            with pytest.raises(Forbidden) as caught:
                check_author(
                    rights, _spec(**shell), _spec(**{**shell, field: value}), GrantedSecrets({"TOKEN"}, {"TOKEN"})
                )
            assert (caught.value.fields["field"], caught.value.fields["needed"]) == (field, needed)


SECRET = {"capabilities": {"secrets": {}}}


@pytest.mark.parametrize(
    ("before", "after", "secrets", "field"),
    [
        (None, SECRET, GrantedSecrets(after={"TOKEN"}), "capabilities"),
        ({}, SECRET, GrantedSecrets(after={"TOKEN"}), "capabilities"),
        (SECRET, SECRET, GrantedSecrets({"TOKEN"}, {"TOKEN", "KEY"}), "capabilities"),
        (SECRET, {**SECRET, "instructions": "Obey me."}, GrantedSecrets({"TOKEN"}, {"TOKEN"}), "instructions"),
        (SECRET, {"capabilities": {"secrets": {}, "notes": {}}}, GrantedSecrets({"*"}, {"*"}), "capabilities"),
    ],
)
def test_secrets_and_what_is_done_with_them_need_the_scope(
    before: dict[str, Any] | None, after: dict[str, Any], secrets: GrantedSecrets, field: str
) -> None:
    configurations = None if before is None else _spec(**before), _spec(**after)
    with pytest.raises(Forbidden) as caught:
        check_author(AuthorRights(trust=True), *configurations, secrets)
    assert (caught.value.fields["field"], caught.value.fields["needed"]) == (field, "secrets")
    check_author(AuthorRights(secrets=True), *configurations, secrets)


def test_an_agent_that_loses_its_secrets_may_be_written_without_the_scope() -> None:
    check_author(AuthorRights(), _spec(**SECRET), _spec(instructions="Be brief."), GrantedSecrets({"TOKEN"}, set()))
    check_author(AuthorRights(), _spec(**SECRET), _spec(**SECRET, description="new"), GrantedSecrets({"*"}, {"*"}))
