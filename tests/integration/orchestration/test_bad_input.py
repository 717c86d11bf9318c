"""Bad input of the orchestration tools: each call fails with the reason, and nothing is half-done."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nova_workers.bootstrap.orchestrations import build_orchestrator
from nova_workers.bootstrap.shell.commands import find_shell
from nova_workers.contracts.orchestration import ORCHESTRATION_TOOLS, RUN_BASH
from nova_workers.domain.capabilities.rules import CapabilityRegistry
from nova_workers.domain.capabilities.rules.transactions import CallTransactions
from nova_workers.engines.native import CommandRunner
from tests.support.harness.trees import MODELS, Forest, call, complete, script, spawn


async def test_there_are_seventeen_tools(forest: Forest) -> None:
    harness = forest.harness
    shell = CommandRunner(find_shell(harness.settings))
    calls = CallTransactions(harness.work)
    names = {
        tool.name
        for tool in build_orchestrator(calls, harness.models, shell, harness.settings, CapabilityRegistry()).tools
    }
    assert names == ORCHESTRATION_TOOLS | {RUN_BASH}
    assert len(names | {"ask_user"}) == 17


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (spawn(complete("x"), model="nothing"), "no model or alias 'nothing'"),
        (spawn(complete("x"), tools=["Bash"]), "you have no tool 'Bash' that you could give"),
        (spawn(complete("x"), cwd="/etc"), "is not within the directories that you could give"),
        (spawn(complete("x"), mcp_servers=["github"]), "there is no plugin 'github'"),
        (spawn(complete("x"), complexity="huge"), "complexity"),
        (call("consult_expert", expert_id="nobody", question="Why?"), "There is no expert 'nobody'"),
        (call("check_child_status", child_id="oag"), "There is no child 'oag'. There are: none."),
        (call("get_child_history", child_id="oag", detail_level="most"), "detail_level"),
        (call("respond_to_child", child_id="oag", response="yes"), "There is no child 'oag'"),
        (call("send_child_prompt", child_id="oag", prompt="go"), "There is no child 'oag'"),
        (call("restart_child", child_id="oag", prompt="go"), "There is no child 'oag'"),
        (call("task_complete", summary="  \n"), "summary: it is blank"),
        (call("spawn_children_parallel", children=[]), "children"),
        (call("consult_peer", question=" "), "question: it is blank"),
        (call("consult_peer", question="Why?"), "peer: none was named"),
        (call("consult_peer", question="Why?", peer="nobody"), "no model or alias 'nobody'"),
        (call("consult_peer", question="Why?", peer="away"), "no model or alias 'away'"),
        (call("consult_peer", question="Why?", thread_id="oag"), "There is no child 'oag'"),
    ],
    ids=lambda value: value if isinstance(value, str) else value["tool"]["name"],
)
async def test_bad_input_fails_the_call_with_its_reason(forest: Forest, item: dict[str, Any], said: str) -> None:
    started = await forest.run(item, complete("done"), config=MODELS)
    (master,) = await forest.agents(started)
    (_, status, text), _ = await forest.results(master)
    assert status == "failed"
    assert said in text
    assert (master.state, master.summary) == ("COMPLETED", "done")


async def test_a_part_of_an_id_that_two_children_have_is_refused_with_both(forest: Forest) -> None:
    children = [{"prompt": script(complete("x")), "name": name} for name in ("a", "b")]
    started = await forest.run(
        call("spawn_children_parallel", children=children), call("check_child_status", child_id="OAG"), complete("done")
    )
    master, *both = await forest.agents(started)
    _, (_, status, text), _ = await forest.results(master)
    assert status == "failed"
    assert all(child.id in text for child in both)


async def test_one_bad_child_of_several_leaves_none_behind(forest: Forest) -> None:
    children = [{"prompt": script(complete("x"))}, {"prompt": "x", "model": "nothing"}]
    started = await forest.run(call("spawn_children_parallel", children=children), complete("done"), config=MODELS)
    assert len(await forest.agents(started)) == 1


async def test_a_killed_agent_spawns_nothing(forest: Forest) -> None:
    started = await forest.start({"sleep_s": 0.3, **spawn(complete("late"))}, complete("done"))
    worker = forest.harness.worker()
    slot = await forest.harness.start_next(worker)
    await forest.harness.until(started.run_id, "running")
    await forest.service.kill(forest.tenant_id, started.orchestration_id, None, "enough")
    await slot
    await forest.settle()
    assert await forest.states(started) == ["KILLED"]


async def test_a_kill_that_races_with_an_end_leaves_one_of_both(forest: Forest) -> None:
    for _ in range(5):
        started = await forest.start(complete("done"))
        await asyncio.gather(
            forest.settle(), forest.service.kill(forest.tenant_id, started.orchestration_id, None, "enough")
        )
        await forest.harness.reconciler.reconcile()
        await forest.settle()
        (master,) = await forest.agents(started)
        assert master.state in {"COMPLETED", "KILLED"}
        assert (await forest.harness.status(started.run_id)) in {"succeeded", "canceled"}


async def test_another_model_is_asked_in_a_thread_that_can_be_continued(forest: Forest) -> None:
    started = await forest.run(
        call("consult_peer", peer="list"),
        call("consult_peer", question=script({"say": "Use a queue."}), peer="local"),
        call("consult_peer", question=script({"say": "Because of order."}), thread_id="oag"),
        complete("done"),
        config=MODELS,
    )
    master, peer = await forest.agents(started)
    listed, first, second, _ = await forest.results(master)
    assert listed[2] == "Peers:\nlocal: big", "The strongest model of each provider that there is."
    assert (peer.role, peer.model, peer.tools, peer.activations) == ("EXPERT", "scripted-opus", (), 2)
    assert first[2].startswith(peer.id)
    assert "Use a queue." in first[2]
    assert "Because of order." in second[2]
