"""The tasks capability on real Postgres: its answers, and that invalid calls change nothing."""

import re
from typing import Any

import pytest
from inline_snapshot import snapshot

from nova_workers.base.clock import SystemClock
from nova_workers.base.config import Settings
from nova_workers.contracts.agents import CapabilityGrant
from nova_workers.contracts.http.tasks import (
    MAX_DESCRIPTION_CHARS,
    MAX_DETAILS_CHARS,
    MAX_OUTCOME_CHARS,
    MAX_RESOURCES,
    MAX_STEPS,
)
from nova_workers.domain.capabilities.rules import default_registry
from nova_workers.ledger.database import Database, PostgresDatabase
from tests.integration.capabilities.tool_caller import ToolCaller, add_tenants
from tests.requirements import proves

GRANT = {"tasks": CapabilityGrant(), "agents": CapabilityGrant()}
NO_STEP = "tst_" + "0" * 26


@pytest.fixture(autouse=True)
async def tenants(database: Database) -> None:
    await add_tenants(database)


@pytest.fixture
def caller(database: Database) -> ToolCaller:
    return ToolCaller(database, capabilities=GRANT)


async def _rows(database: Database) -> list[Any]:
    tables = ("tasks", "task_steps", "task_resources", "task_changes")
    return [[dict(row) for row in await database.fetch(f"SELECT * FROM {table} ORDER BY id")] for table in tables]


def _ids(said: str) -> list[str]:
    return re.findall(r"\[(t[a-z]{2}_[0-9A-Z]{26})\]", said)


async def test_a_task_goes_through_its_whole_life(caller: ToolCaller, database: Database) -> None:
    said = await caller.call(
        "task_create",
        title="Find a flat",
        description="In the north.",
        steps=[{"title": "Look"}, {"title": "Visit"}],
        resources=[{"kind": "url", "value": "https://example.org"}],
    )
    look, visit, resource = _ids(said)
    assert said == (
        "Made task 1.\n\n"
        "Task 1: Find a flat\nStatus: draft\nOwner: a\nDescription:\n  In the north.\n"
        f"Steps (0 of 2 done):\n- [ ] Look [{look}]\n- [ ] Visit [{visit}]\n"
        f"Resources:\n- url https://example.org [{resource}]\nRevision: 1"
    )
    assert "Status: active" in await caller.call("task_update", task_id=1, status="active")
    marked = await caller.call("task_update_step", task_id=1, step_id=look, done=True)
    assert marked == "1 of the 2 steps of task 1 are done."
    said = await caller.call("task_create_subtask", task_id=1, step_id=visit, owner_agent_id="b")
    assert said.startswith("Made subtask 2.\n\nTask 2: Visit\nStatus: active\nOwner: b\nSubtask of task 1,")
    assert await caller.call("task_complete", task_id=1) == (
        "!Task 1 cannot go from 'active' to 'done' while subtasks of it are open: 2. Complete or cancel them first."
    )
    other = ToolCaller(database, agent_id="b", run_id="run_2", capabilities=GRANT)
    assert await other.call("task_complete", task_id=2, outcome="Nice one") == "Task 2 is done."
    said = await caller.call("task_update_steps", task_id=1, steps=[{"id": visit, "title": "Visit"}, {"title": "Sign"}])
    assert f"Steps (1 of 2 done):\n- [x] Visit [{visit}]\n  Subtask 2: Visit (done, owner b)\n- [ ] Sign [" in said
    said = await caller.call("task_add_resource", task_id=1, kind="file", value="lease.pdf", title="The lease")
    (added,) = re.findall(r"tre_\w+", said)
    said = await caller.call("task_remove_resource", task_id=1, resource_id=added)
    assert said == "Removed file 'lease.pdf' from task 1."
    assert await caller.call("task_complete", task_id=1) == "Task 1 is done. 1 of its 2 steps were not done."
    assert await caller.call("task_list") == (
        "2 (done, owner b, subtask of 1): Visit\n1 (done, owner a, 1 of 2 steps done): Find a flat"
    )
    assert await caller.call("task_list", status="draft") == "There are no such tasks."
    assert (await caller.call("task_list", limit=1)).endswith("There may be more: ask with before=2.")
    history = (await caller.call("task_history", task_id=1)).splitlines()
    assert [line.split()[3] for line in reversed(history)] == [
        "created",
        "activated",
        "step_updated",
        "subtask_created",
        "subtask_completed",
        "steps_replaced",
        "resource_added",
        "resource_removed",
        "completed",
    ]
    assert (await caller.call("task_history", task_id=1, limit=1)).endswith("There may be more: ask with before=9.")


@proves("tasks.may-ask")
@pytest.mark.parametrize(
    ("grants", "approvals"),
    [
        ({}, []),
        ({"agents": {"config": {"may_ask": ["c"]}}}, []),
        ({"agents": {"tools": ["list_agents"]}}, []),
        ({"agents": {}}, [{"tool": "ask_agent", "decision": "ask"}]),
    ],
)
async def test_an_agent_gives_work_only_to_agents_that_it_may_ask(
    caller: ToolCaller, database: Database, grants: dict[str, Any], approvals: list[Any]
) -> None:
    _, step = _ids(await caller.call("task_create", title="Of b", owner_agent_id="b", steps=[{"title": "Look"}] * 2))
    own = await caller.call("task_create", title="Own", status="active", steps=[{"title": "Look"}])
    (own_step,) = _ids(own)
    narrow = ToolCaller(database, capabilities={"tasks": {}, **grants}, permissions={"approvals": approvals})
    before = await _rows(database)
    for tool, given in (
        ("task_create", {"title": "Obey", "owner_agent_id": "b"}),
        ("task_create_subtask", {"task_id": 2, "step_id": own_step, "owner_agent_id": "b"}),
        ("task_update", {"task_id": 2, "owner_agent_id": "b"}),
        ("task_update", {"task_id": 1, "description": "Obey"}),
        ("task_update", {"task_id": 1, "status": "active"}),
        ("task_update_steps", {"task_id": 1, "steps": [{"title": "Obey"}]}),
        ("task_update_step", {"task_id": 1, "step_id": step, "title": "Obey"}),
        ("task_add_resource", {"task_id": 1, "kind": "url", "value": "https://example.com/orders"}),
    ):
        said = await narrow.call(tool, **given)
        assert said.startswith("!owner_agent_id: you may not give work to agent 'b'"), (tool, said)
    assert await _rows(database) == before
    assert "Owner: a" in await narrow.call("task_update", task_id=1, owner_agent_id="a")
    assert (await narrow.call("task_create", title="Mine")).startswith("Made task 3.")


@pytest.mark.parametrize(
    ("tool", "given", "says"),
    [
        ("task_create", {}, "title: Field required"),
        ("task_create", {"title": "  "}, "title: String should have at least 1 character"),
        ("task_create", {"title": "x" * 201}, "title: String should have at most 200"),
        ("task_create", {"title": "x", "description": "x" * (MAX_DESCRIPTION_CHARS + 1)}, "description: String should"),
        ("task_create", {"title": "x", "owner_agent_id": "Not An Id"}, "owner_agent_id: String should match"),
        ("task_create", {"title": "x", "owner_agent_id": "nobody"}, "There is no agent 'nobody'"),
        ("task_create", {"title": "x", "status": "done"}, "status: Input should be 'draft' or 'active'"),
        ("task_create", {"title": "x", "steps": [{"title": "x" * 61}]}, "steps.0.title: String should have at most 60"),
        ("task_create", {"title": "x", "steps": [{"title": "x", "subtask_id": 1}]}, "steps.0.subtask_id: Extra"),
        ("task_create", {"title": "x", "steps": [{"title": "x"}] * (MAX_STEPS + 1)}, "steps: Tuple should have at"),
        (
            "task_create",
            {"title": "x", "resources": [{"kind": "file", "value": str(at)} for at in range(MAX_RESOURCES + 1)]},
            "resources: Tuple should have at most 200",
        ),
        ("task_create", {"title": "x", "created_by": "person"}, "created_by: Extra inputs"),
        ("task_get", {"task_id": 99}, "There is no task 99"),
        ("task_get", {"task_id": 0}, "task_id: Input should be greater than or equal to 1"),
        ("task_get", {"task_id": 2**31}, "task_id: Input should be less than or equal to 2147483647"),
        ("task_get", {"task_id": "one"}, "task_id: Input should be a valid integer"),
        ("task_update", {"task_id": 1, "status": "paused"}, "status: Input should be 'draft', 'active'"),
        ("task_update", {"task_id": 1, "status": "done"}, "cannot go from 'draft' to 'done'"),
        ("task_update", {"task_id": 1, "title": "y", "revision": 7}, "is at revision 1, and the change was made from"),
        ("task_update", {"task_id": 1, "thread_id": "thr_1"}, "thread_id: Extra inputs"),
        ("task_complete", {"task_id": 1}, "cannot go from 'draft' to 'done'. It can become active or canceled."),
        ("task_complete", {"task_id": 1, "outcome": "x" * (MAX_OUTCOME_CHARS + 1)}, "outcome: String should have at"),
        ("task_list", {"limit": 101}, "limit: Input should be less than or equal to 100"),
        ("task_list", {"status": "open"}, "status: Input should be"),
        ("task_history", {"task_id": 99}, "There is no task 99"),
        ("task_update_steps", {"task_id": 1, "steps": [{"id": "1", "title": "x"}]}, "steps.0.id: String should match"),
        ("task_update_steps", {"task_id": 1, "steps": [{"id": NO_STEP, "title": "x"}]}, "task 1 has no step"),
        ("task_update_step", {"task_id": 1, "step_id": NO_STEP, "done": True}, "has no step"),
        (
            "task_update_step",
            {"task_id": 1, "step_id": NO_STEP, "details": "x" * (MAX_DETAILS_CHARS + 1)},
            "details: String should have at most 2000",
        ),
        ("task_update_step", {"task_id": 1, "step_id": NO_STEP, "subtask": 1}, "subtask: Extra inputs"),
        ("task_create_subtask", {"task_id": 1, "step_id": NO_STEP}, "has no step"),
        ("task_add_resource", {"task_id": 1, "kind": "url", "value": "ftp://example.org"}, "not an http or https"),
        ("task_add_resource", {"task_id": 1, "kind": "url", "value": "http://"}, "not an http or https"),
        ("task_add_resource", {"task_id": 1, "kind": "url", "value": "http://[::1"}, "not an http or https"),
        ("task_add_resource", {"task_id": 1, "kind": "url", "value": "http://a b/"}, "not an http or https"),
        ("task_add_resource", {"task_id": 1, "kind": "file", "value": "https://a/"}, "give it as kind 'url'"),
        ("task_add_resource", {"task_id": 1, "kind": "file", "value": "a\nb"}, "control characters"),
        ("task_add_resource", {"task_id": 1, "kind": "file", "value": ""}, "at least 1 character"),
        ("task_add_resource", {"task_id": 1, "kind": "dir", "value": "x"}, "kind: Input should be 'url' or 'file'"),
        ("task_remove_resource", {"task_id": 1, "resource_id": "x"}, "resource_id: String should match"),
    ],
)
async def test_an_invalid_call_is_explained_to_the_model_and_changes_nothing(
    caller: ToolCaller, database: Database, tool: str, given: dict[str, Any], says: str
) -> None:
    await caller.call("task_create", title="There")
    before = await _rows(database)
    said = await caller.call(tool, **given)
    assert said.startswith("!")
    assert says in said
    assert await _rows(database) == before


async def test_text_that_the_database_refuses_is_sanitized(caller: ToolCaller) -> None:
    said = await caller.call(
        "task_create", title="a\x00b\nc", description="d\x00", steps=[{"title": "s\x00", "details": "\x00"}]
    )
    assert "Task 1: a\ufffdb c\n" in said
    assert "- [ ] s\ufffd [" in said
    assert await caller.call("task_update", task_id=1, status="active")
    assert (
        await caller.call("task_complete", task_id=1, outcome="\x00")
        == "Task 1 is done. 1 of its 1 steps were not done."
    )


async def test_an_agent_without_a_part_in_a_task_can_only_read_it(caller: ToolCaller, database: Database) -> None:
    step, resource = _ids(
        await caller.call(
            "task_create",
            title="Mine",
            status="active",
            steps=[{"title": "x"}],
            resources=[{"kind": "file", "value": "x"}],
        )
    )
    other = ToolCaller(database, agent_id="b", capabilities=GRANT)
    before = await _rows(database)
    for tool, given in (
        ("task_update", {"title": "x"}),
        ("task_complete", {}),
        ("task_cancel", {}),
        ("task_update_steps", {"steps": []}),
        ("task_update_step", {"step_id": step, "done": True}),
        ("task_create_subtask", {"step_id": step}),
        ("task_add_resource", {"kind": "file", "value": "y"}),
        ("task_remove_resource", {"resource_id": resource}),
    ):
        said = await other.call(tool, task_id=1, **given)
        assert said.startswith("!Task 1 belongs to agent 'a'"), said
    assert "Task 1: Mine" in await other.call("task_get", task_id=1)
    assert await _rows(database) == before
    stranger = ToolCaller(database, "ten_2", capabilities=GRANT)
    assert await stranger.call("task_get", task_id=1) == "!There is no task 1."
    assert await stranger.call("task_cancel", task_id=1) == "!There is no task 1."
    assert await stranger.call("task_list") == "There are no such tasks."


async def test_a_database_that_is_down_is_a_tool_error() -> None:
    nowhere = PostgresDatabase("postgresql://nobody@127.0.0.1:1/none", pool_size=1)
    assert (await ToolCaller(nowhere, capabilities=GRANT).call("task_list")).startswith("!The database ")


def test_the_task_tools_declare_what_may_be_run_again(database: Database) -> None:
    (found,) = (one for one in default_registry(database, Settings(), SystemClock()).discover() if one.name == "tasks")
    assert [(tool.name, tool.idempotent, tool.read_only) for tool in found.tools] == snapshot(
        [
            ("task_create", True, False),
            ("task_get", True, True),
            ("task_update", True, False),
            ("task_complete", True, False),
            ("task_cancel", True, False),
            ("task_list", True, True),
            ("task_history", True, True),
            ("task_update_steps", True, False),
            ("task_update_step", True, False),
            ("task_create_subtask", True, False),
            ("task_add_resource", True, False),
            ("task_remove_resource", True, False),
        ]
    )
