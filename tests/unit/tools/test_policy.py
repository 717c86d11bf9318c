"""The tool policy."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from nova_workers.contracts.agents import AgentSpec, Permissions
from nova_workers.contracts.engine import ToolAuthorization, ToolCall, TrustLevel
from nova_workers.contracts.native import NATIVE_TOOLS
from nova_workers.domain.tool_policy.rules.commands import MAX_LINE_CHARS, read_command
from nova_workers.domain.tool_policy.rules.policy import MAX_REPEATS, CommandPolicy, ToolPolicy, Verdict

LEVELS: tuple[TrustLevel, ...] = ("sandbox", "controlled", "unrestricted")


def _policy(trust: TrustLevel = "unrestricted", **permissions: Any) -> ToolPolicy:
    return ToolPolicy(trust, CommandPolicy(Permissions(**permissions)))


def _kind(command: str, **permissions: Any) -> str:
    return _policy(**permissions).judge("Bash", {"command": command}).kind


def _call(command: str) -> ToolCall:
    return ToolCall("t", "Bash", {"command": command}, 0, 0)


@pytest.mark.parametrize("trust", LEVELS)
def test_a_native_tool_above_the_trust_is_refused_and_any_other_is_not(trust: TrustLevel) -> None:
    policy = _policy(trust)
    for name in NATIVE_TOOLS["unrestricted"]:
        allowed = policy.judge(name, {"command": "ls"}).kind == "allow"
        assert allowed == (name in NATIVE_TOOLS[trust])
    assert policy.judge("memory_save", {}).kind == "allow"


@given(st.text(min_size=1), st.dictionaries(st.text(), st.text()))
def test_a_higher_trust_allows_all_of_a_lower_one(name: str, params: dict[str, str]) -> None:
    verdicts = [_policy(trust).judge(name, params).kind for trust in LEVELS]
    assert verdicts == sorted(verdicts, key=["deny", "ask", "allow"].index)


@pytest.mark.parametrize("trust", ["unrestricted", "sandbox"])
def test_the_same_command_is_refused_the_fourth_time(trust: TrustLevel) -> None:
    policy = _policy(trust)
    rules = [policy.judge("Bash", {"command": "make test"}).rule for _ in range(MAX_REPEATS + 1)]
    assert rules[-1] == "repeat"
    assert "repeat" not in rules[:-1]
    assert policy.judge("Bash", {"command": "make lint"}).rule != "repeat"


def test_commands_that_ran_before_a_resume_count() -> None:
    policy = _policy()
    policy.remember([_call("make test")] * MAX_REPEATS)
    assert policy.judge("Bash", {"command": " make test\n"}).rule == "repeat"


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf /",
        "rm -r -f /usr/",
        "/bin/rm --recursive /*",
        "cd x && rm -fr ~",
        "bash -c 'rm -rf /'",
        'eval "rm -rf //"',
        "FOO=1 env -i rm -rf /etc",
        "echo $(rm -rf /)",
        "sudo ls",
        "x=`sudo ls`",
        "true\nshutdown -h now",
        "cat <<EOF\nit's\nEOF\nsudo ls",
        "dd if=/dev/zero of=/dev/sda",
        "mkfs.ext4 /dev/sda1",
        "echo x > /dev/sda",
        ":(){ :|:& };:",
        "kill -9 -1",
        "x" * (MAX_LINE_CHARS + 1),
    ],
)
def test_destructive_commands_are_refused(command: str) -> None:
    assert _kind(command) == "deny"


@pytest.mark.parametrize(
    "command",
    [
        "ls -la",
        "rm -rf build /tmp/x ./usr",
        "echo 'rm -rf /'",
        'git commit -m "sudo; rm -rf /"',
        "grep -r sudoers .",
        "python - <<'E'\nprint(1)\nE",
        "halting-problem --solve",
        "",
    ],
)
def test_ordinary_commands_are_not_refused(command: str) -> None:
    assert _kind(command) == "allow"


GIT = {"allow_commands": ("git *", "ls*"), "ask_commands": ("git push*",), "unlisted_commands": "deny"}


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("git status", "allow"),
        ("git status && (ls; git log) 2>&1 | ls >/dev/null", "allow"),
        ("git push origin", "ask"),
        ("git add . ; git push", "ask"),
        ("rm x", "deny"),
        ("git status; rm x", "deny"),
        ("git log | sh", "deny"),
        ("git status\nrm x", "deny"),
        ("git log $(rm x)", "deny"),
        ("git log `rm x`", "deny"),
        ("git log <(rm x)", "deny"),
        ("git log > ~/.bashrc", "deny"),
        ("git log >/dev/null/../x", "deny"),
        ("GIT_PAGER=rm git log", "deny"),
        ("$GIT log", "deny"),
        ("git log \\; rm", "deny"),
        ("git log 'open", "deny"),
        ("git2>/dev/null log", "deny"),
    ],
)
def test_a_line_is_allowed_only_as_a_whole(command: str, kind: str) -> None:
    assert _kind(command, **GIT) == kind


def test_deny_overrides_ask_and_ask_overrides_allow() -> None:
    permissions = {"allow_commands": ("*",), "ask_commands": ("git *",), "deny_commands": ("git push*",)}
    assert _kind("git push", **permissions) == "deny"
    assert _kind("git log", **permissions) == "ask"
    assert _kind("ls", **permissions) == "allow"


def test_the_operators_patterns_apply_to_every_agent() -> None:
    policy = CommandPolicy(Permissions(allow_commands=("*",)), deny=("curl *",), ask=("make deploy",))
    assert policy.judge("true && /usr/bin/curl x").kind == "deny"
    assert policy.judge("make deploy").kind == "ask"


@pytest.mark.parametrize("unlisted", ["allow", "ask", "deny"])
def test_the_agents_setting_decides_about_unlisted_commands(unlisted: str) -> None:
    assert _kind("make", allow_commands=("git *",), unlisted_commands=unlisted) == unlisted


def test_a_question_to_a_person_is_a_refusal_for_an_engine_that_cannot_wait() -> None:
    verdict = _policy(ask_commands=("make *",)).judge("Bash", {"command": "make x"})
    assert verdict.reason == "Running 'make x' needs a person's permission: it matches 'make *'."
    refused = verdict.authorization()
    assert isinstance(refused, ToolAuthorization)
    assert not refused.allowed
    assert refused.reason is not None
    assert refused.reason.startswith(f"{verdict.reason} Nobody can be asked in this run.")
    assert Verdict("allow").authorization().allowed


@given(st.text(max_size=200))
def test_any_text_is_read_and_judged(command: str) -> None:
    read = read_command(command)
    assert not (read.plain and "\n" in command.strip("\n"))
    assert read.readable or not read.plain
    assert _kind(command) in {"allow", "deny"}


@given(st.lists(st.sampled_from(["git status", "ls", "rm x", "a 'b c'", "(ls)"]), min_size=1, max_size=5))
def test_an_allowed_line_has_only_allowed_commands(commands: list[str]) -> None:
    line = " && ".join(commands)
    wanted = all(command.startswith(("git", "ls", "(ls")) for command in commands)
    assert (_kind(line, allow_commands=("git *", "ls"), unlisted_commands="deny") == "allow") == wanted


@pytest.mark.parametrize("pattern", ["", "   ", "a\nb", "a\x00", "x" * 501])
def test_a_pattern_that_cannot_match_a_command_is_refused_when_written(pattern: str) -> None:
    with pytest.raises(ValidationError, match="deny_commands"):
        AgentSpec.model_validate({"name": "x", "permissions": {"deny_commands": [pattern]}})


def test_an_agent_from_before_permissions_has_the_default_ones() -> None:
    assert AgentSpec.model_validate({"name": "x"}).permissions == Permissions()
