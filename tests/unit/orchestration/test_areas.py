"""Where children may write, and which of them would write in the same place."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from nova_workers.base.errors import AgentSpawnError
from nova_workers.contracts.orchestration import AgentDescriptor, CapabilityTools
from nova_workers.domain.orchestrations.rules.spawning.areas import WorkArea, Writers, may_write, writers_beside
from tests.requirements import proves

OWN = WorkArea("/w/nova", "/w/nova/orc_1")
"""Of an agent whose only directory is its own."""
GIVEN = WorkArea("/w/nova", "/w/nova/orc_1", ("/srv/project",))
"""Of one that people gave a directory."""


def agent(
    name: str, cwd: str | None = None, *, tools: tuple[str, ...] | None = ("Write",), **more: Any
) -> AgentDescriptor:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    fields: dict[str, Any] = {
        **dict.fromkeys(("tenant_id", "orchestration_id", "thread_id", "run_id", "prompt"), "x"),
        **dict.fromkeys(("expert_id", "category", "summary", "error_code", "error_message", "progress"), None),
        **{"id": f"oag_{name}", "parent_id": "oag_master", "state": "RUNNING", "permission_mode": "DEFAULT"},
        **{"role": "WORKER", "depth": 1, "model": "m", "plugins": (), "activations": 1, "artifacts": {}},
        **{"state_at": now, "created_at": now, "ended_at": None},
        **more,
    }
    return AgentDescriptor(name=name, cwd=cwd, tools=tools, **fields)


KNOWN: CapabilityTools = {"audio": {"audio_transcribe": "reads", "audio_speak": "writes-files"}, "browser": None}
MASTER = agent("master", tools=("Read",), parent_id=None)


def beside(*agents: AgentDescriptor, area: WorkArea = OWN) -> Writers:
    return writers_beside([MASTER, *agents], area, KNOWN, MASTER)


def place(writers: Writers, area: WorkArea = OWN, cwd: str | None = None, *, alone: bool = True) -> str | None:
    return writers.place(area, cwd, alone=alone, name="Worker")


def test_a_child_that_works_alone_works_where_its_parent_does() -> None:
    assert place(beside()) is None
    assert place(beside(), OWN.at("/w/nova/part")) == "/w/nova/part"
    assert place(beside(), GIVEN) is None


def test_children_that_work_at_the_same_time_get_a_directory_each_in_the_folder_of_their_orchestration() -> None:
    first = place(beside(), alone=False)
    assert first == "/w/nova/orc_1/worker"
    second = place(beside(agent("a", first)), alone=False)
    assert second == "/w/nova/orc_1/worker-2"
    assert place(beside(agent("a", first), agent("b", second, state="COMPLETED")), alone=False) == f"{first}-3"
    assert place(beside(), OWN.at(first), alone=False) == f"{first}/worker", "Below that of their parent."
    assert place(beside(agent("a", first))) is None, "The folder is none of the parent's."
    assert place(beside(agent("a"))) == first, "One that its parent waits for, beside another one."


def test_in_directories_of_people_nothing_is_made_and_a_second_child_is_refused_with_what_to_do() -> None:
    assert place(beside(area=GIVEN), GIVEN, alone=False) is None
    with pytest.raises(AgentSpawnError) as refused:
        place(beside(agent("a"), area=GIVEN), GIVEN, alone=False)
    said = refused.value.message
    assert "child 'oag_a' (a) is RUNNING and may write in '/w/nova'" in said
    assert 'Wait until it ends; or spawn both with one each, such as cwd="worker-a" and cwd="worker-b"' in said
    assert "a name is below '/w/nova'; an absolute path may be in /w/nova, /srv/project" in said


@pytest.mark.parametrize(
    ("held", "wanted", "shared"),
    [
        ("/w/nova/a", "/w/nova/a", "/w/nova/a"),
        ("/w/nova/a", "/w/nova/a/b", "/w/nova/a/b"),
        ("/w/nova/a/b", "/w/nova/a", "/w/nova/a/b"),
        (None, "/w/nova/a", "/w/nova/a"),
        ("/w/nova/a", "/w/nova/ab", None),
        (None, "/w/nova/orc_1/a", None),
    ],
)
def test_two_may_write_in_the_same_place_if_one_directory_is_or_contains_the_other(
    held: str | None, wanted: str, shared: str | None
) -> None:
    writers = beside(agent("a", held))
    if shared is None:
        assert place(writers, cwd=wanted) == wanted
        return
    with pytest.raises(AgentSpawnError) as refused:
        place(writers, cwd=wanted)
    assert f"may write in {shared!r}" in refused.value.message
    assert (held is None) == ("spawn both" in refused.value.message)


def test_what_is_proposed_can_be_had() -> None:
    writers = beside(agent("a", "/w/nova/worker-a"), agent("b", "/w/nova/worker-b"))
    with pytest.raises(AgentSpawnError, match='Give this one a directory of its own, such as cwd="worker-d"'):
        place(writers, cwd="/w/nova/worker-a")
    assert place(writers, cwd="/w/nova/worker-d") == "/w/nova/worker-d"


def test_a_child_does_not_wait_for_agents_that_read_that_ended_or_that_are_above_it() -> None:
    parent = agent("p", "/w/nova/a")
    agents = [
        MASTER,
        parent,
        agent("reviewer", "/w/nova/a", tools=("Read", "Glob")),
        agent("plans", "/w/nova/a", permission_mode="PLAN"),
        agent("ended", "/w/nova/a", state="FAILED"),
        agent("again", "/w/nova/a", state="COMPLETED"),
    ]
    writers = writers_beside(agents, OWN, KNOWN, parent, agents[-1])
    assert writers.agents == []
    assert [each.name for each, _ in writers_beside(agents, OWN, KNOWN, MASTER).agents] == ["p"]


@pytest.mark.parametrize("tools", [("Write",), ("Read", "Edit"), ("Bash",), None])
def test_what_may_write(tools: tuple[str, ...] | None) -> None:
    assert may_write(tools, "DEFAULT")
    assert not may_write(tools, "PLAN")
    assert not may_write(tools, "DELEGATE")
    assert not may_write(("Read", "Glob", "WebFetch"), "BYPASS")


@proves("orchestration.directories")
@pytest.mark.parametrize("tools", [None, ("audio_speak",)])
def test_a_tool_of_a_capability_that_writes_files_makes_a_writer(tools: tuple[str, ...] | None) -> None:
    speaks = agent("speaks", tools=("Read",), capabilities={"audio": tools})
    assert [each.name for each, _ in beside(speaks).agents] == ["speaks"]
    hears = agent("hears", tools=("Read",), capabilities={"audio": ("audio_transcribe",), "browser": None, "x": None})
    plans = agent("plans", tools=("Read",), capabilities={"audio": tools}, permission_mode="PLAN")
    assert beside(hears, plans).agents == []
