"""Trust, as the program enforces it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from nova_workers.base.confined import PrivateFiles
from nova_workers.base.errors import ConfigurationError, EngineFailure
from nova_workers.contracts.agents import Enclosure, Permissions
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.engine import EngineCallbacks, SubagentConfig, ToolAuthorization, TrustLevel
from nova_workers.domain.tool_policy.rules import CommandPolicy, ToolPolicy
from nova_workers.engines.claude_agent import ClaudeAgentEngine
from nova_workers.engines.claude_agent.trust import permissions
from nova_workers.engines.native import ShellSettings
from nova_workers.shell_sandbox import ShellSandbox, find_sandbox
from tests.contract.engines.stage import Bench
from tests.integration.engines.claude_agent.claude_turns import (
    conversation_of,
    options,
    request_text,
    results,
    text_response,
    tool_response,
)
from tests.integration.engines.claude_agent.conftest import MakeEngine
from tests.requirements import proves
from tests.support.processes.key_holder import key_holder
from tests.support.servers.model_server import ModelServer, Stream


def offered(server: ModelServer) -> set[str]:
    return {tool["name"] for tool in server.requests[-1].get("tools", ())}


async def test_a_sandbox_has_mcp_tools_and_nothing_else(
    engine: ClaudeAgentEngine, server: ModelServer, workspace: Path
) -> None:
    calls = (
        ("Bash", {"command": "id"}),
        ("Read", {"file_path": str(workspace / "note.txt")}),
        ("mcp__nova__count", {}),
    )
    server.reply(tool_response(*calls), text_response("ok"))
    bench = Bench()
    result = await engine.run("hi", options(cwd=str(workspace), mcp_servers=bench.servers()), "sandbox")
    assert offered(server) == {f"mcp__nova__{name}" for name in ("add", "break", "count", "hang", "meet", "raise")}
    assert [status for status, _ in results(result)] == ["failed", "failed", "completed"]
    assert (result.text, bench.runs) == ("ok", ["count"])
    assert "k-secret" not in request_text(server)


async def test_controlled_trust_works_on_files_within_the_roots_and_has_no_shell(
    engine: ClaudeAgentEngine, server: ModelServer, workspace: Path, tmp_path: Path
) -> None:
    calls = [
        ("Read", {"file_path": str(workspace / "note.txt")}),
        ("Write", {"file_path": str(workspace / "new.txt"), "content": "new"}),
        ("Grep", {"pattern": "inside", "path": str(workspace)}),
        ("Glob", {"pattern": "*.txt"}),
        ("Read", {"file_path": str(tmp_path / "outside.txt")}),
        ("Read", {"file_path": str(workspace / "link.txt")}),
        ("Read", {"file_path": "/etc/hostname"}),
        ("Write", {"file_path": str(tmp_path / "escaped.txt"), "content": "x"}),
        ("Write", {"file_path": f"{workspace}/sub/../../escaped.txt", "content": "x"}),
        ("Grep", {"pattern": "outside", "path": str(tmp_path / "outside.txt")}),
        ("Glob", {"pattern": f"{tmp_path}/*"}),
        ("Write", {"file_path": str(workspace / ".claude" / "settings.json"), "content": "{}"}),
        ("Bash", {"command": "touch /tmp/nova-must-not-be"}),
        ("WebFetch", {"url": server.url, "prompt": "read"}),
    ]
    server.reply(tool_response(*calls), text_response("ok"))
    result = await engine.run("hi", options(cwd=str(workspace)), "controlled")
    assert offered(server) == {"Read", "Write", "Edit", "Glob", "Grep", "WebSearch"}
    assert [status for status, _ in results(result)] == ["completed"] * 4 + ["failed"] * 10
    assert "outside" not in "".join(text for status, text in results(result) if status == "completed")
    assert (workspace / "new.txt").read_text() == "new"
    assert not (tmp_path / "escaped.txt").exists()
    assert not (workspace / ".claude").exists()


@proves("orchestration.directories")
async def test_the_program_writes_in_the_directory_of_a_child_alone_and_reads_around_it(
    engine: ClaudeAgentEngine, server: ModelServer, workspace: Path
) -> None:
    own, other = workspace / "part", workspace / "other"
    for directory in (own, other):
        directory.mkdir()
        (directory / "note.txt").write_text(f"of {directory.name}\n")
    server.reply(
        tool_response(
            ("Read", {"file_path": str(other / "note.txt")}),
            ("Write", {"file_path": "new.txt", "content": "mine"}),
            ("Write", {"file_path": str(other / "new.txt"), "content": "x"}),
            ("Edit", {"file_path": str(other / "note.txt"), "old_string": "of", "new_string": "x"}),
        ),
        text_response("ok"),
    )
    # Without a sandbox there are no commands, at any trust.
    await engine.run("hi", options(cwd=str(own), readable=(str(workspace),)), "unrestricted")
    assert "of other" in request_text(server)
    assert (own / "new.txt").read_text() == "mine"
    assert [path.name for path in other.iterdir()] == ["note.txt"]
    assert (other / "note.txt").read_text() == "of other\n"


async def test_unrestricted_trust_has_a_shell_without_secrets(
    engine: ClaudeAgentEngine, server: ModelServer, workspace: Path, tmp_path: Path
) -> None:
    calls = (
        ("Bash", {"command": "env; pwd"}),
        ("Read", {"file_path": str(tmp_path / "outside.txt")}),
    )
    server.reply(tool_response(*calls), text_response("ok"))
    result = await engine.run("hi", options(cwd=str(workspace)), "unrestricted")
    assert offered(server) == {"Read", "Write", "Edit", "Glob", "Grep", "WebSearch", "Bash"}
    (shell, environment), (read, _) = results(result)
    assert (shell, read) == ("completed", "completed")
    assert str(workspace) in environment
    assert "secret" not in environment
    assert "NOVA_DATABASE_URL" not in environment
    assert server.headers[-1]["x-api-key"] == "k-secret"


@pytest.mark.parametrize(
    "trust", [*(pytest.param(trust, marks=pytest.mark.long) for trust in ("sandbox", "controlled")), "unrestricted"]
)
async def test_the_programs_own_tools_for_plans_are_neither_offered_nor_run(
    engine: ClaudeAgentEngine, server: ModelServer, workspace: Path, trust: TrustLevel
) -> None:
    asked: list[str] = []

    async def authorize(name: str, _: object) -> ToolAuthorization:
        asked.append(name)
        return ToolAuthorization(allowed=True)

    calls = (
        ("ExitPlanMode", {"plan": "Delete it all"}),
        ("EnterPlanMode", {}),
        ("TodoWrite", {"todos": [{"content": "x", "status": "pending", "activeForm": "x"}]}),
        ("AskUserQuestion", {"questions": []}),
    )
    server.reply(tool_response(*calls), text_response("ok"))
    result = await engine.run(
        "hi", options(cwd=str(workspace)), trust, callbacks=EngineCallbacks(authorize_tool=authorize)
    )
    assert asked == [name for name, _ in calls], "The pipeline sees each, and the program has none of them."
    assert not offered(server) & {name for name, _ in calls}
    for (name, _), (status, text) in zip(calls, results(result), strict=True):
        assert status == "failed"
        assert f"No such tool available: {name}" in text
    assert result.text == "ok"


@pytest.mark.parametrize("trust", [pytest.param("controlled", marks=pytest.mark.long), "unrestricted"])
async def test_every_call_is_authorized_even_if_permissions_are_skipped(
    engine: ClaudeAgentEngine, server: ModelServer, workspace: Path, trust: TrustLevel
) -> None:
    asked: list[str] = []

    async def authorize(name: str, _: object) -> ToolAuthorization:
        asked.append(name)
        return ToolAuthorization(allowed=False, reason="Not on Sundays")

    calls = (("Write", {"file_path": str(workspace / "new.txt"), "content": "x"}), ("Bash", {"command": "touch shell"}))
    server.reply(tool_response(*calls), text_response("ok"))
    callbacks = EngineCallbacks(authorize_tool=authorize)
    result = await engine.run("hi", options(cwd=str(workspace)), trust, callbacks=callbacks)
    assert asked == ["Write", "Bash"]
    assert [text for _, text in results(result)] == [
        "Not on Sundays. This call was not permitted, and did not begin."
    ] * 2
    assert "Not on Sundays" in request_text(server)
    assert sorted(os.listdir(workspace)) == ["link.txt", "note.txt"]


@proves("engine.subagents")
async def test_a_subagents_calls_have_the_turns_policy_and_count_with_its_own(
    engine: ClaudeAgentEngine, server: ModelServer, workspace: Path
) -> None:
    policy = ToolPolicy("unrestricted", CommandPolicy(Permissions(deny_commands=("make *",))))

    async def authorize(name: str, given: JsonObject) -> ToolAuthorization:
        verdict = policy.judge(name, given)
        return ToolAuthorization(verdict.kind == "allow", verdict.reason)

    def look(step: int, command: str = "echo same >> ran") -> Stream:
        return tool_response(("Bash", {"command": command, "description": "Look"}), step=step)

    server.reply_when(
        lambda _, body: "You only look." in str(body.get("system")),
        *(look(7, "make it"), look(8), look(9), text_response("I looked.")),
    )
    task = {"description": "look", "prompt": "look at it", "subagent_type": "looker"}
    server.reply(look(0), look(1), tool_response(("Agent", task), step=2), text_response("ok"))
    given = options(cwd=str(workspace), agents={"looker": SubagentConfig("Looks", "You only look.")})
    callbacks = EngineCallbacks(authorize_tool=authorize)
    result = await engine.run("hi", given, "unrestricted", callbacks=callbacks)
    assert (result.error, result.text) == (None, "ok")
    # Calls of the turn and its subagent count together: the subagent's second call is one too many.
    assert (workspace / "ran").read_text() == "same\n" * 3


async def test_a_users_message_is_no_command_to_the_program(
    engine: ClaudeAgentEngine, server: ModelServer, workspace: Path
) -> None:
    server.reply(text_response("ok"))
    message = f"/clear @{workspace / 'note.txt'} @/etc/hostname"
    await engine.run(message, options(cwd=str(workspace)), "controlled")
    assert conversation_of(server) == [("user", message)]
    assert "inside" not in [text for _, text in conversation_of(server)]


async def test_skills_of_the_working_directory_are_offered_and_its_hooks_are_not_run(
    engine: ClaudeAgentEngine, server: ModelServer, workspace: Path
) -> None:
    skill = workspace / ".claude" / "skills" / "rhyme" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: rhyme\ndescription: Greets people in rhyme\n---\nAlways greet in rhyme.\n")
    hook = {"hooks": [{"type": "command", "command": f"touch {workspace}/hooked"}]}
    settings = {"hooks": {"SessionStart": [hook], "PreToolUse": [hook], "UserPromptSubmit": [hook]}}
    (workspace / ".claude" / "settings.json").write_text(str(settings).replace("'", '"'))
    server.reply(tool_response(("Skill", {"skill": "rhyme"})), text_response("ok"))
    result = await engine.run("hi", options(cwd=str(workspace)), "controlled")
    assert "Greets people in rhyme" in request_text(server, 0)
    assert "Skill" in offered(server)
    assert [status for status, _ in results(result)] == ["completed"]
    assert "Always greet in rhyme." in request_text(server, 1)
    assert not (workspace / "hooked").exists()


def test_trust_has_the_permissions_of_the_engine_contract(tmp_path: Path) -> None:
    sandbox = permissions("sandbox", (tmp_path,), skills=True, subagents=False)
    assert (sandbox.mode, sandbox.tools, sandbox.allowed, sandbox.skip) == ("dontAsk", (), ("mcp__nova",), False)
    controlled = permissions("controlled", (tmp_path,), skills=False, subagents=False)
    assert (controlled.mode, controlled.disallowed[0], controlled.skip) == ("dontAsk", "Bash", False)
    assert "Bash" not in controlled.tools
    unrestricted = permissions("unrestricted", (tmp_path,), skills=False, subagents=False)
    assert (unrestricted.mode, unrestricted.skip) == ("bypassPermissions", True)
    assert "Read(//proc/[0-9]*/**)" in unrestricted.disallowed
    assert controlled.disallowed[1:] == unrestricted.disallowed
    assert set(sandbox.tools) < set(controlled.tools) < set(unrestricted.tools)


def test_the_folder_of_other_agents_is_read_and_not_written(tmp_path: Path) -> None:
    for trust in ("controlled", "unrestricted"):
        allowed = permissions(trust, (tmp_path,), kept=tmp_path / "orc_1", skills=False, subagents=False)
        assert f"Edit(/{tmp_path}/orc_1/**)" in allowed.disallowed


def test_a_root_that_a_rule_cannot_express_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineFailure, match="permission rules"):
        permissions("controlled", (tmp_path / "a,b",), skills=False, subagents=False)


async def test_if_commands_are_confined_the_program_has_no_shell_of_its_own(
    make_engine: MakeEngine, server: ModelServer, workspace: Path, tmp_path: Path
) -> None:
    """The sandbox is a stand-in that leaves a mark and runs the command; what it confines is tested with bubblewrap."""
    sandbox = tmp_path / "bwrap"
    mark = tmp_path / "sandboxed"
    sandbox.write_text(f'#!/bin/sh\ntouch {mark}\nwhile [ "$1" != "--" ]; do shift; done; shift; exec "$@"\n')
    sandbox.chmod(0o755)
    engine = make_engine(shell=ShellSettings(sandbox=ShellSandbox((str(sandbox),))))
    calls = (
        ("Bash", {"command": "touch escaped.txt"}),
        ("mcp__nova__Bash", {"command": "cat note.txt"}),
        ("Read", {"file_path": str(tmp_path / "outside.txt")}),
    )
    server.reply(tool_response(*calls), text_response("ok"))
    result = await engine.run("hi", options(cwd=str(workspace)), "unrestricted")
    assert {"mcp__nova__Bash", "Read"} <= offered(server)
    assert "Bash" not in offered(server)
    assert [(call.tool_name, call.status) for call in result.tool_calls] == [
        ("Bash", "failed"),
        ("Bash", "completed"),
        ("Read", "failed"),
    ]
    assert mark.exists()
    assert not (workspace / "escaped.txt").exists()


@pytest.fixture
def fleet_home() -> Iterator[Path]:
    """A NOVA_HOME that is not below /tmp, which the sandbox hides anyway."""
    home = Path(tempfile.mkdtemp(prefix="nova-test-", dir="/var/tmp"))
    home.chmod(0o755)
    work = home / "workspace" / "ten_1" / "clerk"
    work.mkdir(parents=True)
    (work / "note").write_text("a note\n")
    (work / "link").symlink_to(home / "master_keys")
    (home / "master_keys").write_text("hush\n")
    yield home
    shutil.rmtree(home)


@proves("ceilings.sandbox")
async def test_the_program_of_a_tenant_with_ceilings_reaches_no_key(
    make_engine: MakeEngine, server: ModelServer, fleet_home: Path
) -> None:
    """The program itself is in the sandbox, and also one of the operator's own tenant does not see NOVA_HOME."""
    home, work = fleet_home, fleet_home / "workspace" / "ten_1" / "clerk"
    private = PrivateFiles(home, home / "workspace")
    try:
        enclosing = find_sandbox(network=True, hidden=(str(home), str(private.workspace)), private=private)
    except ConfigurationError as error:
        pytest.skip(error.message)
    engine = make_engine(shell=ShellSettings(enclosing=enclosing), private=private)
    enclosed = options(cwd=str(work), enclosure=Enclosure((str(home / "workspace" / "ten_1"),)))
    async with key_holder() as holder:
        paths = (str(work / "note"), str(home / "master_keys"), str(work / "link"), f"/proc/{holder}/environ")
        reads = [("Read", {"file_path": path}) for path in paths]
        command = {"command": f"cat {' '.join(paths)} /proc/*/environ; true"}
        server.reply(tool_response(*reads, ("mcp__nova__Bash", command)), text_response("ok"))
        result = await engine.run("hi", enclosed, "unrestricted")
        # A command that names such a file is refused by the program's own rules already.
        command = {"command": f"cat {' '.join(paths[:3])}; p=pro; cat /${{p}}c/{holder}/environ; true"}
        server.reply(tool_response(*reads, ("Bash", command), step=1), text_response("ok"))
        own = await engine.run("hi", options(cwd=str(work)), "unrestricted")
    assert result.error is None, result.error
    for one in (result, own):
        assert [status for status, _ in results(one)][:4] == ["completed", "failed", "failed", "failed"]
        assert "a note" in results(one)[-1][1]
    assert "hush" not in str((results(result), results(own)))
    bare = await make_engine(shell=ShellSettings(why_none="There is no bwrap.")).run("hi", enclosed, "controlled")
    assert bare.error is not None
    assert "There is no bwrap." in bare.error.message


@proves("ceilings.home")
async def test_the_program_reads_nothing_of_other_processes_on_a_worker_without_a_sandbox(
    engine: ClaudeAgentEngine, server: ModelServer, workspace: Path
) -> None:
    async with key_holder() as holder:
        (workspace / "link").symlink_to(f"/proc/{holder}/environ")
        of_process = (f"/proc/{holder}/environ", f"/proc/self/task/../../{holder}/environ", str(workspace / "link"))
        calls = [("Read", {"file_path": path}) for path in of_process]
        calls += [("Grep", {"pattern": "hush", "path": of_process[0], "output_mode": "content"})]
        calls += [("Read", {"file_path": "/proc/filesystems"}), ("Bash", {"command": "cat /proc/cpuinfo"})]
        server.reply(tool_response(*calls), text_response("ok"))
        result = await engine.run("hi", options(cwd=str(workspace)), "unrestricted")
    assert [status for status, _ in results(result)] == ["failed"] * 4 + ["completed"] * 2
    assert "hush" not in str(results(result))
