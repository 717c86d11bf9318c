"""A turn's skills in the real program."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.base.errors import EngineFailure
from nova_workers.contracts.engine import TrustLevel
from nova_workers.contracts.skills import SkillDirectory, SkillFile
from nova_workers.domain.skills.rules.service import save_skill
from nova_workers.engines.claude_agent import ClaudeAgentEngine
from nova_workers.engines.claude_agent.home import make_home
from nova_workers.ledger.database import Database
from tests.integration.engines.claude_agent.claude_turns import (
    options,
    request_text,
    results,
    text_response,
    tool_response,
)
from tests.integration.engines.claude_agent.conftest import MODEL, MakeEngine
from tests.requirements import proves
from tests.support.harness.workers import Harness
from tests.support.servers.model_server import ModelServer

RHYME = SkillDirectory(
    "rhyme",
    'Greets people: in "rhyme"',
    "Always greet in rhyme. See words/list.txt.",
    (
        SkillFile("words/list.txt", b"bee, tea\n"),
        SkillFile("run.sh", b"#!/bin/sh\necho rhymed aloud\n", executable=True),
    ),
)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of the next turn's skills: its home is created at a known path."""
    home = tmp_path / "home"

    def make(prefix: str) -> str:
        assert prefix
        home.mkdir()
        return str(home)

    monkeypatch.setattr(tempfile, "mkdtemp", make)
    return home / "config" / "skills" / "rhyme"


@pytest.mark.parametrize("trust", ["controlled", pytest.param("unrestricted", marks=pytest.mark.long)])
@proves("skills.files")
async def test_the_model_is_offered_a_skill_loads_it_and_reads_its_files(
    engine: ClaudeAgentEngine, server: ModelServer, workspace: Path, library: Path, trust: TrustLevel
) -> None:
    calls = (("Skill", {"skill": "rhyme"}), ("Read", {"file_path": str(library / "words" / "list.txt")}))
    server.reply(tool_response(*calls), text_response("ok"))
    result = await engine.run("hi", options(cwd=str(workspace), skills=(RHYME,)), trust)
    assert "Greets people: in" in request_text(server, 0)
    assert "Always greet" not in request_text(server, 0)
    assert [status for status, _ in results(result)] == ["completed", "completed"]
    assert "Always greet in rhyme." in request_text(server, 1)
    assert "bee, tea" in request_text(server, 1)
    assert not (workspace / ".claude").exists()
    assert not (library / "SKILL.md").exists(), "it goes with the turn"


@proves("skills.files")
async def test_a_skill_gives_an_agent_no_more_than_its_trust(
    engine: ClaudeAgentEngine, server: ModelServer, workspace: Path, library: Path
) -> None:
    calls = (
        ("Skill", {"skill": "rhyme"}),
        ("Write", {"file_path": str(library / "SKILL.md"), "content": "x"}),
        ("Read", {"file_path": str(library.parent.parent.parent / "prompt.txt")}),
        ("Bash", {"command": str(library / "run.sh")}),
    )
    server.reply(tool_response(*calls), text_response("ok"))
    # The program would run what stands behind an exclamation mark when the skill is loaded.
    skill = replace(RHYME, body="Now: !`touch hooked`")
    result = await engine.run("hi", options(cwd=str(workspace), system_prompt="p", skills=(skill,)), "controlled")
    assert [status for status, _ in results(result)][1:] == ["failed"] * 3
    assert not (workspace / "hooked").exists()


async def test_scripts_of_a_skill_run_if_there_is_a_shell(
    engine: ClaudeAgentEngine, server: ModelServer, workspace: Path, library: Path
) -> None:
    server.reply(tool_response(("Bash", {"command": str(library / "run.sh")})), text_response("ok"))
    result = await engine.run("hi", options(cwd=str(workspace), skills=(RHYME,)), "unrestricted")
    assert [(status, text.strip()) for status, text in results(result)] == [("completed", "rhymed aloud")]


async def test_the_turns_own_skills_override_those_of_the_working_directory(
    engine: ClaudeAgentEngine, server: ModelServer, workspace: Path
) -> None:
    for name in ("rhyme", "whistle"):
        skill = workspace / ".claude" / "skills" / name / "SKILL.md"
        skill.parent.mkdir(parents=True)
        skill.write_text(f"---\nname: {name}\ndescription: The directory's {name}\n---\nNever {name}.\n")
    server.reply(tool_response(("Skill", {"skill": "whistle"})), text_response("ok"))
    result = await engine.run("hi", options(cwd=str(workspace), skills=(RHYME,)), "controlled")
    assert "The directory's whistle" in request_text(server, 0)
    assert "Greets people: in" in request_text(server, 0)
    assert "The directory's rhyme" not in request_text(server, 0)
    assert [status for status, _ in results(result)] == ["completed"]
    assert "Never whistle." in request_text(server, 1)


async def test_a_sandbox_has_no_skill_files(engine: ClaudeAgentEngine, server: ModelServer) -> None:
    server.reply(text_response("ok"))
    await engine.run("hi", options(skills=(RHYME,)), "sandbox")
    assert "Greets people" not in request_text(server)


def test_skills_that_cannot_be_written_fail_the_turn_and_leave_no_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(EngineFailure, match="cannot be written"):
        make_home(None, (), (SkillDirectory("x", "d", "b", (SkillFile("x" * 300, b""),)),))
    assert list(tmp_path.iterdir()) == []


@proves("skills.files")
async def test_an_agent_of_the_fleet_has_its_skills_as_files_and_no_tool_for_them(
    database: Database, redis: Redis, settings: Settings, make_engine: MakeEngine, server: ModelServer
) -> None:
    harness = Harness(database, redis, settings)
    harness.engines["claude_agent"] = make_engine()
    await harness.open()
    try:
        async with database.transaction() as connection:
            for name in ("rhyme", "whistle"):
                text = f"---\nname: {name}\ndescription: Greets in {name}.\nallowed-tools: Bash\n---\nAlways {name}."
                await save_skill(connection, harness.tenant_id, name, text, RHYME.files)
        spec = {"name": "Poet", "engine": "claude_agent", "model": MODEL, "trust": "controlled", "skills": ["rhyme"]}
        await harness.add_agent("poet", spec)
        server.reply(tool_response(("Skill", {"skill": "rhyme"})), text_response("Hello, fellow!"))
        run = await harness.submit("hi", await harness.thread("poet"))
        await harness.settle(harness.worker())
        assert await harness.status(run.run_id) == "succeeded"
    finally:
        await harness.close()
    assert "Greets in rhyme." in request_text(server, 0)
    assert "Greets in whistle." not in request_text(server, 0)
    assert "skill_load" not in request_text(server, 0)
    assert "Always rhyme." in request_text(server, 1)
    assert "Bash" not in {tool["name"] for tool in server.requests[-1]["tools"]}
