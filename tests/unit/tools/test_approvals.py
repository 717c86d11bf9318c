"""Which calls need approval, which are allowed, and which are refused."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from nova_workers.contracts.agents import ApprovalRule, Permissions
from nova_workers.domain.tool_policy.rules.approvals import first_rule, main_text
from nova_workers.domain.tool_policy.rules.policy import MAX_REPEATS, CommandPolicy, ToolPolicy, Verdict

ALWAYS_BASH = {"tool": "Bash", "decision": "always"}


def _judge(
    tool: str, params: dict[str, Any], *rules: dict[str, Any], operator_ask: tuple[str, ...] = (), **more: Any
) -> Verdict:
    permissions = Permissions.model_validate({"approvals": rules, **more})
    return ToolPolicy("unrestricted", CommandPolicy(permissions, ask=operator_ask)).judge(tool, params)


def _bash(command: str, *rules: dict[str, Any], **more: Any) -> str:
    return _judge("Bash", {"command": command}, *rules, **more).kind


@pytest.mark.parametrize(("decision", "kind"), [("always", "allow"), ("ask", "ask"), ("never", "deny")])
@pytest.mark.parametrize(
    ("tool", "rule"),
    [
        ("note_delete", "note_delete"),
        ("note_delete", "note_*"),
        ("mcp__github__push", "mcp__*"),
        ("Write", "[WE]*"),
        ("anything", "*"),
    ],
)
def test_a_rule_matches_tools_by_their_names(tool: str, rule: str, decision: str, kind: str) -> None:
    assert _judge(tool, {}, {"tool": rule, "decision": decision}).kind == kind


def test_a_tool_without_a_matching_rule_is_allowed() -> None:
    rules = ({"tool": "note_*", "decision": "never"}, {"tool": "mcp__*", "decision": "ask"})
    assert _judge("memory_save", {"content": "x"}, *rules) == Verdict("allow")
    assert _judge("Note_delete", {}, *rules).kind == "allow", "names are compared with their case"


def test_a_long_command_is_read_once_for_all_rules() -> None:
    rules = [{"tool": "Bash", "pattern": f"x{number} *", "decision": "never"} for number in range(100)]
    begun_s = time.thread_time()
    assert _bash("; ".join(f"echo {number}" for number in range(1_000)), *rules) == "allow"
    assert time.thread_time() - begun_s < 1.0


@pytest.mark.parametrize(("decision", "kind"), [("always", "deny"), ("never", "deny"), ("ask", "deny")])
def test_a_line_of_too_many_commands_is_refused_unread(decision: str, kind: str) -> None:
    line = ";".join(f"a{number}" for number in range(1_001))
    assert _bash(line, {"tool": "Bash", "pattern": "a*", "decision": decision}) == kind
    rule = ApprovalRule.model_validate({"tool": "Bash", "pattern": "b*", "decision": decision})
    assert (first_rule([rule], "Bash", {"command": line}) is not None) == (decision != "always")


def test_the_first_matching_rule_decides() -> None:
    rules = (
        {"tool": "note_delete", "decision": "never"},
        {"tool": "note_*", "pattern": "*draft*", "decision": "always"},
        {"tool": "note_*", "decision": "ask"},
    )
    assert _judge("note_delete", {"id": "draft"}, *rules).kind == "deny"
    assert _judge("note_create", {"title": "a draft"}, *rules).kind == "allow"
    assert _judge("note_create", {"title": "final"}, *rules).kind == "ask"


@pytest.mark.parametrize(
    ("params", "pattern", "fits"),
    [
        ({"url": "https://example.org/x"}, "https://example.org/*", True),
        ({"url": "https://example.com/x"}, "https://example.org/*", False),
        ({"file_path": "/etc/passwd", "content": "x"}, "/etc/*", True),
        ({"file_path": "/tmp/x", "content": "/etc/passwd"}, "/etc/*", False),
        ({"file_path": "/tmp/x", "content": "my password"}, "*password*", True),
        ({"title": "x", "public": True}, '*"public": true*', True),
        ({"public": False}, '*"public": true*', False),
        ({"a": "one\ntwo"}, "one*two", True),
        ({}, "?*", True),
        ({"nested": {"name": "Zoë"}}, "*Zoë*", True),
    ],
)
def test_a_pattern_is_compared_with_the_main_text_and_the_arguments_as_json(
    params: dict[str, Any], pattern: str, fits: bool
) -> None:
    rule = {"tool": "*", "pattern": pattern, "decision": "never"}
    assert (_judge("tool", params, rule).kind == "deny") == fits


@pytest.mark.parametrize(
    ("tool", "params", "pattern"),
    [
        ("Write", {"file_path": "/etc/passwd", "command": "/tmp/x"}, "/tmp/*"),
        ("Write", {"file_path": "/etc/passwd", "content": "/tmp/x"}, "*/tmp/*"),
        ("Write", {"file_path": "/tmp/../etc/passwd"}, "/tmp/*"),
        ("WebFetch", {"url": "https://evil.example", "path": "https://good.example/"}, "https://good.example/*"),
        ("mcp__hub__delete", {"target": "all", "title": "a draft"}, "*draft*"),
        ("mcp__hub__delete", {"number": 1, "note": "a draft"}, "*draft*"),
        ("mcp__hub__delete", {"body": 'x "draft": true', "public": True}, '*"draft": true*'),
        ("mcp__hub__delete", {"meta": {"draft": True}}, '*"draft": true*'),
        ("task_update", {"id": "victim", "title": "a draft"}, "*draft*"),
        ("note_create", {"title": "a draft", "tags": ["x"]}, "*draft*"),
    ],
)
def test_an_argument_that_imitates_another_is_permitted_nothing(
    tool: str, params: dict[str, Any], pattern: str
) -> None:
    always = {"tool": "*", "pattern": pattern, "decision": "always"}
    assert _judge(tool, params, always, {"tool": "*", "decision": "ask"}).kind == "ask"


@pytest.mark.parametrize(
    ("tool", "params", "pattern"),
    [
        ("Write", {"file_path": "/etc/passwd", "command": "/tmp/x"}, "/etc/*"),
        ("WebFetch", {"url": "https://evil.example/x", "command": "x"}, "https://evil.example/*"),
        ("mcp__hub__delete", {"command": "x", "path": "/etc/passwd"}, "/etc/*"),
    ],
)
def test_an_argument_hides_no_other_from_what_is_forbidden(tool: str, params: dict[str, Any], pattern: str) -> None:
    assert _judge(tool, params, {"tool": "*", "pattern": pattern, "decision": "never"}).kind == "deny"


@pytest.mark.parametrize(
    ("params", "arguments", "always", "never"),
    [
        ({"draft": True, "body": "x"}, {"draft": "true"}, True, True),
        ({"draft": False, "body": '"draft": true'}, {"draft": "true"}, False, False),
        ({"draft": "true"}, {"draft": "true"}, True, True),
        ({"meta": {"draft": True}}, {"draft": "true"}, False, False),
        ({"issue": {"labels": ["bug", "ui"]}}, {"issue.labels.1": "ui"}, True, True),
        ({"issue": {"labels": ["bug"]}}, {"issue.labels.1": "*"}, False, False),
        ({"issue": {"labels": ["bug"]}}, {"issue.labels": "*bug*"}, False, True),
        ({"repo": "us/x", "title": "t"}, {"repo": "us/*", "title": "?"}, True, True),
        ({"repo": "them/x", "title": "us/x"}, {"repo": "us/*"}, False, False),
        ({"count": 3}, {"count": "3"}, True, True),
        ({}, {"count": "*"}, False, False),
    ],
)
def test_single_arguments_are_compared_by_their_paths(
    params: dict[str, Any], arguments: dict[str, str], always: bool, never: bool
) -> None:
    rule = {"tool": "mcp__*", "arguments": arguments}
    ask = {"tool": "*", "decision": "ask"}
    assert (_judge("mcp__hub__push", params, {**rule, "decision": "always"}, ask).kind == "allow") == always
    assert (_judge("mcp__hub__push", params, {**rule, "decision": "never"}).kind == "deny") == never


def test_a_command_among_the_arguments_is_read_as_a_command() -> None:
    rule = {"tool": "Bash", "arguments": {"command": "git *"}, "decision": "always"}
    assert _bash("git log", rule, unlisted_commands="deny") == "allow"
    assert _bash("git log; rm x", rule, unlisted_commands="deny") == "deny"


@pytest.mark.parametrize(
    ("command", "always", "never"),
    [
        ("git status", True, True),
        ("git status && git log", True, True),
        ("git status; rm x", False, True),
        ("git log $(rm x)", False, True),
        ("cd /x && GIT_PAGER=cat git log", False, True),
        ("ls", False, False),
    ],
)
def test_a_command_is_allowed_as_a_whole_and_denied_by_any_part(command: str, always: bool, never: bool) -> None:
    rule = {"tool": "Bash", "pattern": "git *"}
    permitted = _bash(command, {**rule, "decision": "always"}, unlisted_commands="deny")
    assert (permitted == "allow") == always
    assert (_bash(command, {**rule, "decision": "never"}) == "deny") == never
    assert (_bash(command, {**rule, "decision": "ask"}) == "ask") == never


def test_always_allows_what_the_agent_would_ask_and_does_not_list() -> None:
    assert _bash("make x", unlisted_commands="ask") == "ask"
    assert _bash("make x", ALWAYS_BASH, unlisted_commands="deny", ask_commands=["make *"]) == "allow"


def test_always_does_not_override_denials_or_the_operators_questions() -> None:
    assert _bash("sudo ls", ALWAYS_BASH) == "deny"
    assert _bash("rm -rf /", ALWAYS_BASH) == "deny"
    assert _bash("curl x", ALWAYS_BASH, deny_commands=["curl *"]) == "deny"
    assert _bash("make deploy", ALWAYS_BASH, operator_ask=("make deploy",)) == "ask"


def test_a_command_that_is_denied_anyway_needs_no_approval() -> None:
    assert _bash("sudo ls", {"tool": "Bash", "decision": "ask"}) == "deny"


def test_rules_come_after_the_trust_and_the_repeat_guard() -> None:
    permissions = Permissions.model_validate({"approvals": [{"tool": "*", "decision": "always"}]})
    sandbox = ToolPolicy("sandbox", CommandPolicy(permissions))
    assert sandbox.judge("Read", {"file_path": "x"}).rule == "trust"
    policy = ToolPolicy("unrestricted", CommandPolicy(permissions))
    rules = [policy.judge("Bash", {"command": "make"}).rule for _ in range(MAX_REPEATS + 1)]
    assert rules[-1] == "repeat"


def test_an_approval_describes_the_call_to_a_person() -> None:
    verdict = _judge("note_delete", {"title": "My\n plan" + "x" * 900}, {"tool": "note_*", "decision": "ask"})
    assert verdict.rule == "ask: note_*"
    assert verdict.reason is not None
    assert verdict.reason.startswith("Using note_delete with 'My planxxx")
    assert verdict.reason.endswith("…' needs a person's permission: the agent's approval rules say so.")
    assert len(verdict.reason) < 450
    assert "nobody" not in verdict.reason.lower()


def test_arguments_that_are_too_long_are_allowed_by_no_rule_and_denied_by_any() -> None:
    params = {"content": "x" * 1_100_000}
    rules = [ApprovalRule(tool="*", pattern="*y*", decision=decision) for decision in ("always", "never")]
    assert first_rule(rules, "Write", params) is rules[1]
    assert first_rule(rules[:1], "Write", params) is None


@given(st.text(max_size=50), st.dictionaries(st.text(max_size=10), st.integers() | st.text(max_size=50), max_size=4))
def test_any_call_is_judged(pattern: str, params: dict[str, Any]) -> None:
    rule = ApprovalRule(tool="*", pattern=pattern or None, decision="ask")
    for tool in ("Bash", "note_create"):
        assert first_rule((rule,), tool, params) in (rule, None)
    assert main_text("note_create", params) in (None, *params.values())


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        ({"tool": "", "decision": "ask"}, "tool"),
        ({"tool": "a b", "decision": "ask"}, "tool"),
        ({"tool": "x", "decision": "sometimes"}, "decision"),
        ({"tool": "x"}, "decision"),
        ({"tool": "x", "pattern": "", "decision": "ask"}, "pattern"),
        ({"tool": "x", "decision": "ask", "until": "tomorrow"}, "until"),
        ({"tool": "x", "decision": "ask", "arguments": {}}, "arguments"),
        ({"tool": "x", "decision": "ask", "arguments": {"a..b": "x"}}, "arguments"),
    ],
)
def test_an_invalid_rule_is_refused_with_its_field(rule: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError, match=rf"approvals\.0\.{field}"):
        Permissions.model_validate({"approvals": [rule]})


def test_the_number_of_rules_is_limited() -> None:
    with pytest.raises(ValidationError, match="approvals"):
        Permissions.model_validate({"approvals": [{"tool": "x", "decision": "ask"}] * 101})
