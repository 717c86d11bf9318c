"""The one check of an author's rights: what fields give, and what steers a document that holds it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import BaseModel

from nova_workers.base.errors import Forbidden
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.authors.rights import rights_of
from nova_workers.contracts.orders import PolicyDocument
from nova_workers.domain.agents.rules.authors import (
    Authored,
    AuthorRights,
    check_author,
    holdings_of,
    holdings_of_agents,
)
from nova_workers.domain.orchestrations.rules.config.parsing import parse_config
from nova_workers.domain.orchestrations.rules.config.values import OrchestrationConfig
from tests.requirements import proves
from tests.support.harness.grants import all_grants

GRANTS = all_grants()
SHELL = {"trust": "unrestricted"}
SECRET = {"capabilities": {"secrets": {}}}


def _spec(**fields: Any) -> AgentSpec:
    return AgentSpec.model_validate({"name": "Clerk", **fields})


def _with(server: dict[str, Any]) -> dict[str, Any]:
    return {"capabilities": {"mcp": {"config": {"servers": {"tools": server}}}}}


def _server(**fields: Any) -> dict[str, Any]:
    return _with({"type": "http", "url": "https://tools.example.com/mcp", **fields})


def _written(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> Authored:
    return Authored(_spec(**after), None if before is None else _spec(**before), GRANTS)


def _refused(rights: AuthorRights, written: Authored) -> tuple[str, str]:
    with pytest.raises(Forbidden) as caught:
        check_author(rights, written)
    fields = caught.value.fields
    assert caught.value.message.startswith(f"{fields['field']}: ")
    assert f"--scope {fields['needed']}" in caught.value.message, "it says how to get the right"
    return str(fields["field"]), str(fields["needed"])


@pytest.mark.parametrize(
    ("before", "after", "field"),
    [
        (None, SHELL, "trust"),
        ({"trust": "controlled"}, SHELL, "trust"),
        (None, {"directories": ["/srv"]}, "directories.0"),
        ({"directories": ["/srv/acme"]}, {"directories": ["/srv/acme", "/srv"]}, "directories.1"),
        (SHELL, {**SHELL, "instructions": "Obey me."}, "instructions"),
        ({**SHELL, "permissions": {"unlisted_commands": "ask"}}, SHELL, "permissions.unlisted_commands"),
        ({"directories": ["/srv"]}, {"directories": ["/srv"], "identity": "Mine."}, "identity"),
    ],
)
def test_more_trust_and_directories_and_what_is_done_with_them_need_the_scope(
    before: dict[str, Any] | None, after: dict[str, Any], field: str
) -> None:
    assert _refused(AuthorRights(secrets=True), _written(before, after)) == (field, "trust")
    check_author(AuthorRights(trust=True), _written(before, after))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, {"trust": "controlled"}),
        ({"trust": "sandbox"}, {"trust": "controlled"}),
        (SHELL, {**SHELL, "description": "new", "max_turns": 3}),
        ({"directories": ["/srv/acme"]}, {"directories": ["/srv/acme/in"]}),
        (SHELL, {"trust": "controlled", "instructions": "Be brief."}),
        ({"trust": "controlled"}, {"trust": "controlled", "instructions": "Be brief."}),
        (SECRET, {"instructions": "Be brief."}),
        (SECRET, {**SECRET, "description": "new"}),
        (None, _server()),
    ],
)
def test_what_an_agent_has_already_needs_no_scope(before: dict[str, Any] | None, after: dict[str, Any]) -> None:
    check_author(AuthorRights(), _written(before, after))


@pytest.mark.parametrize(
    ("before", "after", "field"),
    [
        (None, SECRET, "capabilities.secrets.config.names.0"),
        ({}, SECRET, "capabilities.secrets.config.names.0"),
        (SECRET, {"capabilities": {"secrets": {"config": {"names": ["*", "KEY"]}}}}, ".names.1"),
        (SECRET, {**SECRET, "instructions": "Obey me."}, "instructions"),
        (SECRET, {"capabilities": {"secrets": {}, "notes": {}}}, "capabilities.notes.tools"),
        (None, _server(headers={"X-Key": "Bearer ${secret:KEY}"}), ".servers.tools.headers.X-Key"),
        (None, _server(url="https://tools.example.com/${secret:KEY}"), ".servers.tools.url"),
        # Where a secret goes is as good as the secret.
        (
            _server(headers={"X-Key": "${secret:KEY}"}),
            _server(headers={"X-Key": "${secret:KEY}"}, url="https://evil.example.com/mcp"),
            ".servers.tools.url",
        ),
        (None, _with({"type": "gone"}), "capabilities.mcp.config"),
    ],
)
def test_secrets_and_what_is_done_with_them_need_the_scope(
    before: dict[str, Any] | None, after: dict[str, Any], field: str
) -> None:
    named, needed = _refused(AuthorRights(trust=True), _written(before, after))
    assert (needed, named.endswith(field)) == ("secrets", True), named
    check_author(AuthorRights(secrets=True), _written(before, after))


def test_a_program_in_a_directory_needs_the_scope_of_directories() -> None:
    program = {"type": "stdio", "command": "npx"}
    for before, after in ((None, {**program, "cwd": "/srv"}), (program, {**program, "cwd": "/srv"})):
        written = _written(None if before is None else _with(before), _with(after))
        assert _refused(AuthorRights(secrets=True), written) == ("capabilities.mcp.config.servers.tools.cwd", "trust")


_CHANGES: dict[str, Any] = {
    "name": "Clerk. Obey letters",
    "identity": "Mine.",
    "instructions": "Obey me.",
    "responsibilities": [{"title": "Letters", "content": "Obey them."}],
    "capabilities": {**SECRET["capabilities"], "notes": {}},
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
    assert {*_CHANGES, *_HARMLESS, "trust", "directories"} == set(AgentSpec.model_fields)
    held = {**SHELL, **SECRET}
    for field, value in _HARMLESS.items():
        check_author(AuthorRights(), _written(held, {**held, field: value}))
    for field, value in _CHANGES.items():
        for rights, needed in ((AuthorRights(secrets=True), "trust"), (AuthorRights(trust=True), "secrets")):
            named, lacking = _refused(rights, _written(held, {**held, field: value}))
            assert (named.partition(".")[0], lacking) == (field, needed)


# Configurations of orchestrations

_PLUGIN = "plugins: {crm: {type: http, url: 'https://crm.example.com/mcp', headers: {X-Key: '${secret:KEY}'}}}\n"
_BYPASS = "experts: {fixer: {system_prompt: Fix it., permission_mode: bypass}}\n"
_PLAIN = "experts: {fixer: {system_prompt: Fix it.}}\n"


def _config(text: str) -> OrchestrationConfig:
    return parse_config(text)


@pytest.mark.parametrize(
    ("before", "after", "field", "needed"),
    [
        ("", _PLUGIN, "plugins.crm.headers.X-Key", "secrets"),
        ("", _BYPASS, "experts.fixer.permission_mode", "trust"),
        ("", _BYPASS.replace("bypass", "ACCEPT_EDITS"), "experts.fixer.permission_mode", "trust"),
        (_PLAIN, _BYPASS, "experts.fixer.permission_mode", "trust"),
        ("", "engine: {command_policy: {whitelist: ['git *']}}\n", "engine.command_policy.whitelist.0", "trust"),
        # The copy of an entry under another name gives its rights once more.
        (_BYPASS, _BYPASS.replace("fixer", "other"), "experts.other.permission_mode", "trust"),
        (_PLUGIN, _PLUGIN.replace("crm:", "erp:"), "plugins.erp.headers.X-Key", "secrets"),
        # An entry that holds a right is steered by the whole document.
        (_PLUGIN, _PLUGIN.replace("https://crm", "https://evil"), "plugins.crm.url", "secrets"),
        (_PLUGIN, _PLUGIN + _PLAIN, "experts.fixer", "secrets"),
        (_BYPASS, _BYPASS.replace("Fix it.", "Obey me."), "experts.fixer.system_prompt", "trust"),
        (_BYPASS, _BYPASS + "providers: {mine: {}}\n", "providers.mine.engine", "trust"),
    ],
)
def test_a_configuration_gives_and_steers_what_its_author_may(before: str, after: str, field: str, needed: str) -> None:
    lacking = AuthorRights(trust=needed != "trust", secrets=needed != "secrets")
    named, missing = _refused(lacking, Authored(_config(after), _config(before)))
    assert (missing, named.startswith(field)) == (needed, True), named
    check_author(AuthorRights(trust=True, secrets=True), Authored(_config(after), _config(before)))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", _PLAIN),
        (_PLAIN, _PLAIN.replace("Fix it.", "Repair it.")),
        (_PLUGIN + _BYPASS, _PLUGIN + _BYPASS),
        (_PLUGIN + _BYPASS, _PLUGIN + _BYPASS + "engine: {max_agent_depth: 3, token_budget: 9}\n"),
        (_BYPASS, _PLAIN),
        (_PLUGIN + _BYPASS, ""),
    ],
)
def test_what_a_configuration_keeps_or_loses_needs_no_scope(before: str, after: str) -> None:
    check_author(AuthorRights(), Authored(_config(after), _config(before)))


def test_a_configuration_steers_the_agents_of_its_tenant() -> None:
    held = holdings_of_agents({"clerk": _spec(**SHELL), "plain": _spec()}, GRANTS)
    assert held == {"trust": ["the trust 'unrestricted' of the agent 'clerk'"]}
    written = Authored(_config(_PLAIN), _config(""), steers=held)
    assert _refused(AuthorRights(secrets=True), written) == ("experts.fixer.expert_id", "trust")
    check_author(AuthorRights(), Authored(_config("engine: {max_agent_depth: 3}\n"), _config(""), steers=held))


def test_a_field_without_a_declaration_takes_the_most() -> None:
    class Later(BaseModel):
        text: str = "x"

    assert _refused(AuthorRights(secrets=True), Authored(Later())) == ("text", "trust")
    assert holdings_of(Later()) == {"trust": ["the value 'x'"]}


def test_a_policy_of_work_orders_gives_nothing() -> None:
    assert all(right.scope is None for right in rights_of(PolicyDocument).values())


def test_an_agent_as_an_author_has_the_rights_that_it_holds() -> None:
    assert AuthorRights.of_agent(holdings_of(_spec(**SHELL), GRANTS)) == AuthorRights(trust=True)
    assert AuthorRights.of_agent(holdings_of(_spec(**SECRET), GRANTS)) == AuthorRights(secrets=True)
    assert AuthorRights.of_agent(holdings_of(_spec(), GRANTS)) == AuthorRights()
