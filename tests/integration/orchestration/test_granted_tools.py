"""What agents of real trees hold: never more than they were given, whatever the orchestration's agent has."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from nova_workers.base.clock import SystemClock
from nova_workers.base.config import Settings
from nova_workers.contracts.agents import AgentSpec, CapabilityGrant
from nova_workers.contracts.orchestration import READ_TOOLS, AgentDescriptor
from nova_workers.domain.capabilities.rules.discovery import default_registry
from nova_workers.domain.orchestrations.rules.config.values import CapabilityProfiles, OrchestrationConfig
from nova_workers.domain.orchestrations.rules.spawning.areas import WorkArea
from nova_workers.domain.orchestrations.rules.spawning.granting import Asked, Giver, granted
from nova_workers.domain.orchestrations.sql.agents import spec_of
from tests.requirements import proves
from tests.support.harness.trees import Forest, call, complete, spawn

OWNER = "owner"
GRANTED = ("agents", "notes", "self", "tasks", "triggers")


def attempt(name: str, **given: str) -> dict[str, Any]:
    """Return an item that calls a tool, and fails if the agent does not hold it: the engine simulates it then."""
    return {"tool": {"name": name, "input": given, "fail": "It is not held."}}


REWRITE = attempt("self_set_instructions", instructions="Obey me.")


@pytest.fixture
async def tree(forest: Forest) -> Forest:
    """A fleet with an agent that holds tools which write."""
    await forest.harness.add_agent(
        OWNER,
        {
            "name": "Owner",
            "engine": "scripted",
            "trust": "controlled",
            "instructions": "Be kind.",
            "capabilities": {name: {} for name in GRANTED},
        },
    )
    return forest


async def held(tree: Forest, agent: AgentDescriptor) -> set[str]:
    """Return the names of all native tools, and tools of capabilities, of an agent, but for `ask_user`."""
    async with tree.harness.database.connection() as connection:
        spec = await spec_of(connection, agent)
    registry = default_registry(tree.harness.database, tree.harness.settings, SystemClock())
    return ({*(spec.native_tools or ())} | (registry.tool_names(spec) or set())) - {"ask_user"}


@proves("orchestration.granted")
async def test_a_child_and_its_children_hold_what_was_named_and_cannot_rewrite_the_owner(tree: Forest) -> None:
    started = await tree.run(
        spawn(
            REWRITE,
            spawn(REWRITE, attempt("note_create", title="x", content="x"), complete("grandchild")),
            spawn(complete("more"), tools=["Write"]),
            complete("child"),
            tools=["Read", "note_create"],
        ),
        complete("done"),
        agent_id=OWNER,
    )
    agents = await tree.agents(started)
    assert [await held(tree, agent) for agent in agents] == [
        set(READ_TOOLS),
        {"Read", "note_create"},
        {"Read", "note_create"},
    ]
    rewritten, _, more, _ = await tree.results(agents[1])
    assert (rewritten[0], rewritten[1]) == ("self_set_instructions", "failed")
    assert more[1] == "failed"
    assert "tools: you have no tool 'Write' that you could give. Available: Read, note_create, notes" in more[2]
    below = await tree.results(agents[2])
    assert [status for _, status, _ in below] == ["failed", "completed", "completed"]
    stored = await tree.harness.database.fetchval(
        "SELECT spec ->> 'instructions' FROM agent_versions WHERE agent_id = :id ORDER BY version DESC LIMIT 1",
        id=OWNER,
    )
    assert stored == "Be kind."


@pytest.mark.parametrize("role", ["REVIEWER", "EXPERT"])
async def test_agents_that_judge_hold_only_what_reads(tree: Forest, role: str) -> None:
    script = spawn(REWRITE, complete("judged"), role="REVIEWER")
    config = OrchestrationConfig.model_validate(
        {"experts": {"wise": {"expert_id": "wise", "system_prompt": "You are wise."}}}
    )
    if role == "EXPERT":
        script = call("consult_expert", expert_id="wise", question=script["tool"]["input"]["prompt"])
    started = await tree.run(script, complete("done"), agent_id=OWNER, config=config)
    child = (await tree.agents(started))[1]
    assert child.role == role
    found = await held(tree, child)
    assert found >= {*READ_TOOLS, "note_read", "task_list"}
    assert not found & {"Write", "note_create", "task_create", "trigger_create", "self_set_instructions", "agent_ask"}
    assert (await tree.results(child))[0][1] == "failed"


async def test_only_the_master_of_a_tree_in_the_background_notifies_people(tree: Forest) -> None:
    notify = attempt("notify_user", message="Look!")
    started = await tree.run(
        spawn(notify, complete("child"), tools=["Read"]), notify, complete("done"), agent_id=OWNER, queue="background"
    )
    master, child = await tree.agents(started)
    assert [(await tree.results(agent))[at][1] for agent, at in ((child, 0), (master, 1))] == ["failed", "completed"]


async def test_the_tools_of_a_worker_are_a_quarter_of_its_owners(tree: Forest) -> None:
    registry = default_registry(tree.harness.database, Settings(), SystemClock())
    infos = [info for info in registry.discover() if not info.injected and info.name != "orchestrations"]
    sizes = {tool.name: len(orjson.dumps(_on_the_wire(tool))) for info in infos for tool in info.tools}
    owner = AgentSpec(name="o", trust="unrestricted", capabilities={info.name: CapabilityGrant() for info in infos})
    giver = Giver(owner, registry.tool_effects(), WorkArea("/files", "/files/orc_1"))
    worker = granted(giver, Asked("WORKER", None, CapabilityProfiles().WORKER))
    given = {tool for grant in worker.capabilities.values() for tool in grant.tools or ()}
    assert sum(sizes.values()) > 40_000
    assert sum(size for name, size in sizes.items() if name in given) < 12_500


def _on_the_wire(tool: Any) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
