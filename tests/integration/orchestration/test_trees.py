"""Trees of agents: spawned, waited for, asked, restarted and ended."""

from __future__ import annotations

from nova_workers.contracts.orchestration import OrchestrationLimits
from tests.support.harness.trees import Forest, call, complete, script, spawn


async def test_a_master_waits_for_its_child_and_gets_its_result(forest: Forest) -> None:
    started = await forest.run(spawn(complete("The bug is in parse().")), {"say": "Found it."})
    master, child = await forest.agents(started)
    assert (master.state, child.state) == ("COMPLETED", "COMPLETED")
    assert (master.role, child.role, child.depth, child.parent_id) == ("MASTER", "WORKER", 1, master.id)
    assert child.summary == "The bug is in parse()."
    assert master.summary == "Found it."
    ((name, status, text),) = await forest.results(master)
    assert (name, status) == ("spawn_child", "completed")
    assert "The bug is in parse()." in text


async def test_children_in_parallel_are_awaited_together(forest: Forest) -> None:
    children = [{"prompt": script(complete(f"part {part}"))} for part in range(3)]
    started = await forest.run(call("spawn_children_parallel", children=children), complete("All three."))
    master, *others = await forest.agents(started)
    assert [agent.summary for agent in others] == ["part 0", "part 1", "part 2"]
    (_, status, text), _ = await forest.results(master)
    assert status == "completed"
    assert all(f"part {part}" in text for part in range(3))
    assert master.summary == "All three."


async def test_a_child_asks_its_waiting_parent_and_goes_on_with_the_answer(forest: Forest) -> None:
    started = await forest.run(
        spawn(call("ask_parent", question="Tabs or spaces?"), complete("Formatted.")),
        call("get_children_status"),
        {"say": "done"},
    )
    master, child = await forest.agents(started)
    assert child.state == "KILLED", "The parent ended without an answer."
    (_, _, text), _ = await forest.results(master)
    assert "Tabs or spaces?" in text
    assert "respond_to_child" in text


async def test_a_parent_answers_a_question_and_receives_the_result(forest: Forest) -> None:
    started = await forest.start(
        spawn(call("ask_parent", question="Tabs or spaces?"), complete("Formatted with spaces.")),
        call("respond_to_child", child_id="oag", response="Spaces."),
        call("wait_for_message"),
        complete("done"),
    )
    await forest.settle()
    master, child = await forest.agents(started)
    assert (master.state, child.state) == ("COMPLETED", "COMPLETED")
    results = await forest.results(master)
    assert "Formatted with spaces." in results[2][2]
    assert (await forest.results(child))[0][2] == "Spaces."


async def test_the_depth_of_a_tree_is_bounded(forest: Forest) -> None:
    started = await forest.run(
        spawn(spawn(complete("too deep")), {"say": "alone"}), limits=OrchestrationLimits(max_agent_depth=1)
    )
    agents = await forest.agents(started)
    assert len(agents) == 2
    ((_, status, text),) = await forest.results(agents[1])
    assert status == "failed"
    assert "1 levels deep" in text
