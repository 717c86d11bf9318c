"""Directories of children: each that may write has one of its own, or the spawn is refused with what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nova_workers.base.config import Settings
from nova_workers.contracts.http.started import Started
from tests.requirements import proves
from tests.support.harness.trees import Forest, call, complete, script, spawn

OWNER = "owner"
WAITS = call("ask_user", question="Go on?")


@pytest.fixture
async def tree(forest: Forest) -> Forest:
    """A fleet with an agent whose children may write, in its own directory."""
    await forest.harness.add_agent(OWNER, {"name": "Owner", "engine": "scripted", "trust": "controlled"})
    return forest


@pytest.fixture
async def project(tree: Forest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that people gave to an agent `builder`, outside of NOVA_HOME."""
    directory = tmp_path_factory.mktemp("project")
    spec = {"name": "Builder", "engine": "scripted", "trust": "controlled", "directories": [str(directory)]}
    await tree.harness.add_agent("builder", spec)
    return directory


async def _directories(forest: Forest, started: Started) -> list[str | None]:
    return [agent.cwd for agent in await forest.agents(started)]


async def _said(forest: Forest, started: Started) -> list[tuple[str, str]]:
    master, *_ = await forest.agents(started)
    return [(status, text) for _, status, text in await forest.results(master)]


@proves("orchestration.directories")
async def test_a_second_child_that_could_write_in_the_same_place_is_refused_with_the_argument_to_give(
    tree: Forest, settings: Settings
) -> None:
    workspace = settings.agent_directory(tree.tenant_id, OWNER)
    started = await tree.run(
        spawn(WAITS, wait=False, name="First", cwd="part"),
        spawn(WAITS, wait=False, cwd="part"),
        spawn(WAITS, wait=False, cwd=str(workspace / "part" / "inner")),
        spawn(WAITS, wait=False, cwd="worker-b"),
        spawn(WAITS, wait=False, cwd="part", role="REVIEWER"),
        spawn(WAITS, wait=False, cwd="part", tools=["Read"]),
        spawn(WAITS, wait=False, cwd="../else"),
        complete("done"),
        agent_id=OWNER,
    )
    first, *said, _ = await _said(tree, started)
    _, child, *others = await tree.agents(started)
    assert first[1].endswith(f"works on it, in {workspace}/part. Get its result with wait_for_message.")
    assert [status for status, _ in said] == ["failed", "failed", "completed", "completed", "completed", "failed"]
    assert said[0][1] == (
        f"cwd: child {child.id!r} (First) is PENDING and may write in "
        f"'{workspace}/part', where this one could write too, so each might overwrite what the other one does. Give "
        f'this one a directory of its own, such as cwd="worker-b" (a name is below {str(workspace)!r}). A child that '
        'only reads needs none: role REVIEWER, or tools such as ["Read", "Glob", "Grep"].'
    )
    assert f"may write in '{workspace}/part/inner'" in said[1][1]
    assert "is not within the directories that you could give" in said[-1][1]
    assert [agent.cwd for agent in others] == [f"{workspace}/worker-b", *[f"{workspace}/part"] * 2]


@proves("orchestration.directories")
async def test_children_that_work_at_the_same_time_have_a_directory_each_and_one_alone_that_of_its_parent(
    tree: Forest, settings: Settings
) -> None:
    forms = [
        {"prompt": script(spawn(complete("1"), name="in"), complete("first")), "name": "A & B"},
        {"prompt": script(spawn(complete("2"), name="beside", wait=False), complete("second"))},
        {"prompt": script(complete("reads")), "name": "reader", "tools": ["Read"]},
    ]
    started = await tree.run(
        call("spawn_children_parallel", children=forms),
        spawn(complete("alone"), name="alone"),
        complete("done"),
        agent_id=OWNER,
    )
    folder = settings.agent_directory(tree.tenant_id, OWNER) / started.orchestration_id
    assert {agent.name: agent.cwd for agent in await tree.agents(started)} == {
        "Master": None,
        "A & B": f"{folder}/a-b",
        "Worker": f"{folder}/worker",
        "reader": None,
        "in": f"{folder}/a-b",
        "beside": f"{folder}/worker/beside",
        "alone": None,
    }
    assert (folder / "a-b").is_dir()


@proves("orchestration.directories")
async def test_in_directories_that_people_gave_children_write_at_the_same_time_only_where_they_were_put(
    forest: Forest, project: Path
) -> None:
    children: list[dict[str, Any]] = [{"prompt": script(complete(name)), "name": name} for name in "ab"]
    placed = [{**child, "cwd": str(project / child["name"])} for child in children]
    started = await forest.run(
        call("spawn_children_parallel", children=children),
        call("spawn_children_parallel", children=placed),
        complete("done"),
        agent_id="builder",
    )
    refused, done, _ = await _said(forest, started)
    assert refused[0] == "failed"
    assert 'spawn both with one each, such as cwd="worker-a" and cwd="worker-b"' in refused[1]
    assert str(project) in refused[1]
    assert done[0] == "completed"
    assert await _directories(forest, started) == [None, f"{project}/a", f"{project}/b"]


@proves("orchestration.directories")
async def test_a_child_is_not_restarted_where_another_one_writes_by_now(tree: Forest) -> None:
    started = await tree.run(
        spawn(complete("first"), cwd="part", name="first"),
        spawn(complete("second"), cwd="part", name="second"),
        complete("done"),
        agent_id=OWNER,
    )
    _, first, *_ = await tree.agents(started)
    started = await tree.service.continue_(
        tree.tenant_id,
        started.orchestration_id,
        script(
            spawn(WAITS, cwd="part", name="third", wait=False),
            call("restart_child", child_id=first.id, prompt=script(complete("again"))),
            spawn(complete("reused"), reuse=first.id),
            complete("done"),
        ),
    )
    await tree.settle()
    master, first, *_ = await tree.agents(started)
    _, restarted, reused, _ = await tree.results(master)
    assert [restarted[1], reused[1], first.activations] == ["failed", "failed", 1]
    assert "(third) is PENDING and may write in" in restarted[2]
    assert "(third) is PENDING and may write in" in reused[2]


async def test_the_children_of_a_master_that_has_a_directory_work_there(forest: Forest, project: Path) -> None:
    started = await forest.run(
        spawn(complete("inherits")),
        spawn(complete("below"), cwd="below"),
        complete("done"),
        agent_id="builder",
        cwd=str(project / "part"),
    )
    part = f"{project}/part"
    assert await _directories(forest, started) == [part, part, f"{part}/below"]
