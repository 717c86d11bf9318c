"""The tool policy decides about every call of a run, whichever engine makes it."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from nova_workers.contracts.content import text_of
from nova_workers.ledger.database import Row
from tests.support.harness.manual_clock import ManualClock
from tests.support.harness.workers import Harness


async def _calls(harness: Harness, run_id: str) -> list[Row]:
    return await harness.database.fetch(
        "SELECT c.* FROM tool_calls c JOIN runs r ON r.turn_id = c.turn_id WHERE r.id = :run_id"
        " ORDER BY c.step, c.sequence",
        run_id=run_id,
    )


async def _play(harness: Harness, commands: list[str], **spec: Any) -> list[Row]:
    script = [{"tool": [{"name": "Bash", "input": {"command": command}}]} for command in commands]
    agent = {"name": "a", "engine": "scripted", "engine_config": {"script": [*script, {"say": "Done"}]}, **spec}
    await harness.add_agent("tester", agent)
    run = await harness.submit("go", agent_id="tester")
    await harness.settle(harness.worker())
    assert await harness.status(run.run_id) == "succeeded"
    return await _calls(harness, run.run_id)


@pytest.mark.parametrize("trust", ["sandbox", "controlled"])
async def test_a_shell_command_needs_the_trust_for_it(harness: Harness, trust: str) -> None:
    with capture_logs() as logs:
        (call,) = await _play(harness, ["ls"], trust=trust)
    assert call["status"] == "failed"
    assert f"at the trust {trust!r}" in text_of(tuple(call["result"]))
    assert [log["rule"] for log in logs if log["event"] == "tool.refused"] == ["trust"]


async def test_the_agents_patterns_and_the_repeat_guard_decide(harness: Harness) -> None:
    permissions = {"deny_commands": ["curl *"]}
    commands = ["curl x", "make", "make", "make", "make"]
    with capture_logs() as logs:
        await _play(harness, commands, trust="unrestricted", permissions=permissions)
    assert [log["rule"] for log in logs if log["event"] == "tool.refused"] == ["deny: curl *", "repeat"]


@pytest.mark.parametrize("trust", ["sandbox", "controlled", "unrestricted"])
async def test_an_agent_with_native_tools_has_a_directory_of_its_own(harness: Harness, trust: str) -> None:
    await _play(harness, [], trust=trust)
    place = harness.settings.workspace_root / harness.tenant_id / "tester"
    assert place.is_dir() == (trust != "sandbox")
    if place.exists():
        assert place.stat().st_mode & 0o077 == 0


async def test_a_removed_directory_is_created_again(harness: Harness) -> None:
    await harness.add_agent("tester", {"name": "a", "engine": "scripted", "trust": "controlled"})
    place = harness.settings.workspace_root / harness.tenant_id / "tester"
    clock = ManualClock()
    worker = harness.worker(clock=clock)
    for there_at_the_end in (True, False, True):
        await harness.submit("go", agent_id="tester")
        await harness.settle(worker)
        # One that was there a moment ago is not looked for.
        assert place.exists() == there_at_the_end
        if there_at_the_end:
            place.rmdir()
        else:
            clock.advance(61)


async def test_a_directory_that_cannot_be_made_fails_the_run_with_that_reason(harness: Harness) -> None:
    harness.settings.workspace_root.parent.mkdir(parents=True, exist_ok=True)
    harness.settings.workspace_root.write_text("a file is in the way")
    await harness.add_agent("tester", {"name": "a", "engine": "scripted", "trust": "controlled"})
    run = await harness.submit("go", agent_id="tester")
    await harness.settle(harness.worker())
    row = await harness.run(run.run_id)
    assert row["status"] == "failed"
    assert "NOVA_TOOLS__WORKSPACE_ROOT" in row["error_message"]
