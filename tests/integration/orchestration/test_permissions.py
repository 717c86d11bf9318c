"""Permissions of agents of orchestrations: modes, the command policy, and what holds in every mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nova_workers.base.errors import InvalidInput
from nova_workers.contracts.waits import Answer
from nova_workers.domain.orchestrations.rules.config.values import OrchestrationConfig
from tests.support.harness.trees import Forest, call, complete, spawn

OWNER = "owner"


@pytest.fixture
async def directory(forest: Forest, tmp_path: Path) -> Path:
    """The directory of an agent that may run commands; it bounds the trees of these tests."""
    await forest.harness.add_agent(
        OWNER,
        {
            "name": "Owner",
            "engine": "scripted",
            "trust": "unrestricted",
            "directories": [str(tmp_path)],
            "permissions": {"deny_commands": ["rm *"], "unlisted_commands": "ask"},
        },
    )
    return tmp_path


def config(mode: str = "DEFAULT", **policy: list[str]) -> OrchestrationConfig:
    """Return a configuration with one expert in a mode, and a command policy."""
    expert = {"expert_id": "shell", "system_prompt": "You know shells.", "permission_mode": mode}
    return OrchestrationConfig.model_validate(
        {"engine": {"command_policy": policy}, "experts": {"shell": {**expert, "tools": ["Read", "Write", "Bash"]}}}
    )


async def results_of_child(forest: Forest, *items: dict[str, Any], **fields: Any) -> list[tuple[str, str, str]]:
    started = await forest.run(spawn(*items), complete("done"), agent_id=OWNER, **fields)
    return await forest.results((await forest.agents(started))[1])


async def test_a_command_of_the_whitelist_runs_in_the_agents_directory(forest: Forest, directory: Path) -> None:
    run = call("run_bash", command="pwd", cwd=str(directory))
    (_, status, text), _ = await results_of_child(forest, run, complete("done"), config=config(whitelist=["pwd"]))
    assert (status, text) == ("completed", str(directory))


async def test_a_failed_command_is_a_failed_call_with_its_output(forest: Forest, directory: Path) -> None:
    run = call("run_bash", command="ls nothing-here", timeout=5, cwd=str(directory))
    (_, status, text), _ = await results_of_child(forest, run, complete("done"), config=config(whitelist=["ls *"]))
    assert status == "failed"
    assert "[exit code 2]" in text


async def test_a_command_outside_the_agents_directories_is_refused(forest: Forest, directory: Path) -> None:
    run = call("run_bash", command="pwd", cwd="/")
    (_, status, text), _ = await results_of_child(forest, run, complete("done"), config=config(whitelist=["pwd"]))
    assert status == "failed"
    assert text.startswith("cwd: '/' is not a directory within")


async def test_an_unlisted_command_and_one_of_the_blacklist_wait_for_a_person(forest: Forest, directory: Path) -> None:
    for command in ("date", "touch made"):
        run = call("run_bash", command=command, cwd=str(directory))
        started = await forest.run(
            spawn(run, complete("done")),
            complete("done"),
            agent_id=OWNER,
            config=config(whitelist=["touch *"], blacklist=["touch *"]),
        )
        child = (await forest.agents(started))[1]
        assert await forest.harness.status(child.run_id) == "waiting"
        await forest.harness.waiting.answer(forest.tenant_id, child.run_id, None, Answer(approve=True))
        await forest.settle()
        assert await forest.states(started) == ["COMPLETED", "COMPLETED"]
    assert (directory / "made").exists()


async def test_the_same_command_runs_three_times_at_most(forest: Forest, directory: Path) -> None:
    runs = [call("run_bash", command="pwd")] * 4
    results = await results_of_child(forest, *runs, complete("done"), config=config(whitelist=["pwd"]))
    assert [status for _, status, _ in results] == [*["completed"] * 3, "failed", "completed"]
    assert "ran 3 times" in results[3][2]


async def test_an_agent_without_a_shell_has_no_run_bash(forest: Forest) -> None:
    started = await forest.run(
        spawn(call("run_bash", command="pwd"), complete("done")), call("run_bash", command="pwd"), complete("done")
    )
    for agent in await forest.agents(started):
        refused = next(each for each in await forest.results(agent) if each[0] == "run_bash")
        assert refused[1] == "failed"
        assert "There is no tool 'Bash'" in refused[2]


async def consulted(forest: Forest, mode: str, *items: dict[str, Any]) -> list[tuple[str, str, str]]:
    started = await forest.run(
        call("consult_expert", expert_id="shell", question=spawn(*items)["tool"]["input"]["prompt"]),
        complete("done"),
        agent_id=OWNER,
        config=config(mode, whitelist=["true"], blacklist=["touch *"]),
    )
    expert = (await forest.agents(started))[1]
    assert expert.permission_mode == mode
    return await forest.results(expert)


async def test_bypass_asks_for_nothing_but_what_is_denied_stays_denied(forest: Forest, directory: Path) -> None:
    denied, allowed, _ = await consulted(
        forest,
        "BYPASS",
        call("run_bash", command="rm -r x"),
        call("run_bash", command="date"),
        complete("done"),
    )
    assert denied[1] == "failed"
    assert "'rm *'" in denied[2]
    assert allowed[1] == "completed"


@pytest.mark.parametrize("mode", ["PLAN", "DELEGATE"])
async def test_an_agent_that_may_only_read_runs_no_command_and_writes_nothing(
    forest: Forest, directory: Path, mode: str
) -> None:
    command, write, done = await consulted(
        forest,
        mode,
        call("run_bash", command="true"),
        call("Write", file_path=str(directory / "x"), content="x"),
        complete("read"),
    )
    for refused in (command, write):
        assert refused[1] == "failed"
        assert f"In the permission mode {mode}" in refused[2]
    assert done[1] == "completed", "Orchestration tools are allowed in each mode."


async def test_the_children_of_an_agent_that_may_only_read_may_only_read(forest: Forest, directory: Path) -> None:
    started = await forest.start(spawn(spawn(complete("child")), complete("done")), complete("done"), agent_id=OWNER)
    await forest.harness.database.execute(
        "UPDATE orchestration_agents SET permission_mode = 'PLAN' WHERE orchestration_id = :id",
        id=started.orchestration_id,
    )
    await forest.settle()
    assert [agent.permission_mode for agent in await forest.agents(started)] == ["PLAN", "PLAN", "PLAN"]


async def test_a_call_that_is_always_allowed_is_not_asked_again_in_the_whole_tree(
    forest: Forest, directory: Path
) -> None:
    made = call("run_bash", command="date", cwd=str(directory))
    started = await forest.run(
        spawn(made, made, complete("one"), name="a"),
        spawn(made, complete("two"), name="b"),
        complete("done"),
        agent_id=OWNER,
    )
    child = (await forest.agents(started))[1]
    answer = Answer(approve=True, remember=True)
    await forest.harness.waiting.answer(forest.tenant_id, child.run_id, None, answer)
    await forest.settle()
    assert await forest.states(started) == ["COMPLETED", "COMPLETED", "COMPLETED"]
    other = await forest.run(spawn(made, complete("x")), complete("done"), agent_id=OWNER)
    assert await forest.harness.status((await forest.agents(other))[1].run_id) == "waiting", "Another tree asks."


async def test_only_an_approval_in_an_orchestration_can_be_remembered(forest: Forest, directory: Path) -> None:
    made = call("run_bash", command="date", cwd=str(directory))
    started = await forest.run(spawn(made, complete("x")), complete("done"), agent_id=OWNER)
    child = (await forest.agents(started))[1]
    with pytest.raises(InvalidInput, match="only an approval can be remembered"):
        await forest.harness.waiting.answer(forest.tenant_id, child.run_id, None, Answer(approve=False, remember=True))
    assert await forest.harness.status(child.run_id) == "waiting"
