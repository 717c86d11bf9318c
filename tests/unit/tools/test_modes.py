"""What each permission mode of an orchestration's agent allows."""

from __future__ import annotations

from typing import get_args

import pytest

from nova_workers.base.vocabulary import PermissionMode, TrustLevel
from nova_workers.contracts.agents import Permissions
from nova_workers.contracts.orchestration import ORCHESTRATION_TOOLS
from nova_workers.domain.tool_policy.rules import CommandPolicy, ModeRules, ToolPolicy

RULES = Permissions.model_validate(
    {
        "approvals": [
            {"tool": "never_this", "decision": "never"},
            {"tool": "Write", "decision": "ask"},
            {"tool": "spawn_child", "decision": "ask"},
        ],
        "ask_commands": ["make *"],
        "deny_commands": ["dd *"],
    }
)
MODES: tuple[PermissionMode, ...] = get_args(PermissionMode)


def judge(mode: PermissionMode, tool: str, *, trust: TrustLevel = "unrestricted", command: str = "ls") -> str:
    policy = ToolPolicy(trust, CommandPolicy(RULES, ask=["git push*"]), mode=ModeRules(mode))
    return policy.judge(tool, {"command": command} if tool in ("Bash", "run_bash") else {}).kind


@pytest.mark.parametrize(
    ("tool", "command", "default", "accept_edits", "bypass", "plan"),
    [
        ("Read", "", "allow", "allow", "allow", "allow"),
        ("Write", "", "ask", "allow", "allow", "deny"),
        ("note_save", "", "allow", "allow", "allow", "deny"),
        ("never_this", "", "deny", "deny", "deny", "deny"),
        ("spawn_child", "", "allow", "allow", "allow", "allow"),
        ("ask_user", "", "allow", "allow", "allow", "allow"),
        # Tools for plans have no rule of their own: only a server of the tenant can offer one.
        ("ExitPlanMode", "", "allow", "allow", "allow", "deny"),
        ("update_plan", "", "allow", "allow", "allow", "deny"),
        ("run_bash", "ls", "allow", "allow", "allow", "deny"),
        ("run_bash", "make all", "ask", "ask", "allow", "deny"),
        ("Bash", "dd if=x", "deny", "deny", "deny", "deny"),
        ("run_bash", "git push", "ask", "ask", "ask", "deny"),
    ],
)
def test_a_mode_decides_before_the_rules_of_the_agent(
    tool: str, command: str, default: str, accept_edits: str, bypass: str, plan: str
) -> None:
    assert judge("DEFAULT", tool, command=command) == default
    assert judge("ACCEPT_EDITS", tool, command=command) == accept_edits
    assert judge("BYPASS", tool, command=command) == bypass
    assert judge("PLAN", tool, command=command) == plan
    assert judge("DELEGATE", tool, command=command) == plan


@pytest.mark.parametrize("mode", MODES)
def test_no_mode_gives_a_tool_that_the_trust_forbids(mode: PermissionMode) -> None:
    assert judge(mode, "run_bash", trust="controlled") == "deny"
    assert judge(mode, "Write", trust="sandbox") == "deny"


def test_a_command_is_counted_whichever_tool_runs_it_and_in_each_mode() -> None:
    policy = ToolPolicy("unrestricted", CommandPolicy(RULES), mode=ModeRules("BYPASS"))
    kinds = [policy.judge(tool, {"command": "ls"}).kind for tool in ("Bash", "run_bash", "Bash", "run_bash")]
    assert kinds == ["allow", "allow", "allow", "deny"]


def test_a_tool_named_run_bash_outside_orchestrations_is_an_ordinary_tool() -> None:
    assert ToolPolicy("sandbox", CommandPolicy(RULES)).judge("run_bash", {"command": "dd x"}).kind == "allow"


def test_every_mode_allows_every_orchestration_tool() -> None:
    assert {judge(mode, tool) for mode in MODES for tool in ORCHESTRATION_TOOLS} == {"allow"}
