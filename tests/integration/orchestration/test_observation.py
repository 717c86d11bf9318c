"""What agents read by their tools: the conversations of their children, and models."""

from __future__ import annotations

from typing import Any

import pytest

from nova_workers.base.errors import ModelNotAvailableError
from nova_workers.contracts.orchestration import AgentDescriptor, HistoryEntry
from nova_workers.domain.orchestrations.rules.history import load_history
from tests.support.harness.trees import MODELS, Forest, call, complete, script, spawn


async def results_of_master(forest: Forest, *items: dict[str, Any], **fields: Any) -> list[tuple[str, str, str]]:
    started = await forest.run(*items, **fields)
    return await forest.results((await forest.agents(started))[0])


async def test_a_parent_reads_the_whole_conversation_of_its_child(forest: Forest) -> None:
    child = (
        {"think": "Which file?"},
        {"say": "Looking.", **call("report_progress", status="half")},
        complete("Found."),
    )
    _, (_, status, text), *_ = await results_of_master(
        forest, spawn(*child), call("get_child_history", child_id="oag"), complete("done")
    )
    assert status == "completed"
    for part in ("[USER_MESSAGE]", "[TEXT] Looking.", '[TOOL_CALL] report_progress {"status":"half"}', "Reported."):
        assert part in text
    assert text.index("[TOOL_CALL] report_progress") < text.index("[TOOL_RESULT] report_progress: Reported.")


async def test_a_summary_of_a_conversation_has_texts_and_names_of_tools_only(forest: Forest) -> None:
    child = ({"say": "Looking.", **call("report_progress", status="half")}, complete("Found."))
    _, (_, _, text), *_ = await results_of_master(
        forest, spawn(*child), call("get_child_history", child_id="oag", detail_level="summary"), complete("done")
    )
    assert "[TEXT] Looking." in text
    assert "[TOOL_CALL] report_progress" in text
    assert '"half"' not in text.partition("[TEXT]")[2]
    assert "TOOL_RESULT" not in text


async def test_a_history_has_the_thoughts_and_the_failures_of_all_activations(forest: Forest) -> None:
    started = await forest.run(
        spawn({"think": "Why not?", **call("respond_to_child", child_id="x", response="y")}, complete("one")),
        call("restart_child", child_id="oag", prompt=script(complete("two"))),
        complete("done"),
    )
    child = (await forest.agents(started))[1]
    entries = await history(forest, child)
    assert [entry.type for entry in entries] == [
        *("USER_MESSAGE", "THINKING", "TOOL_CALL", "TOOL_RESULT", "TOOL_CALL", "TOOL_RESULT"),
        *("USER_MESSAGE", "TOOL_CALL", "TOOL_RESULT"),
    ]
    assert (entries[3].tool_name, entries[3].failed) == ("respond_to_child", True)
    assert len({entry.run_id for entry in entries}) == 2


async def test_the_history_of_another_agents_child_is_not_shown(forest: Forest) -> None:
    inner = (spawn(complete("grandchild")), call("get_child_history", child_id="nothing"), complete("child"))
    started = await forest.run(spawn(*inner), complete("done"))
    _, child, grandchild = await forest.agents(started)
    _, (_, status, text), _ = await forest.results(child)
    assert status == "failed"
    assert f"There is no child 'nothing'. There are: {grandchild.id}." in text
    other = await results_of_master(forest, call("get_child_history", child_id=grandchild.id), complete("done"))
    assert other[0][1] == "failed"
    assert "There are: none." in other[0][2]


async def test_a_complexity_chooses_a_model_that_suffices(forest: Forest) -> None:
    started = await forest.run(
        spawn(complete("easy"), complexity="simple"),
        spawn(complete("hard"), complexity="expert"),
        complete("done"),
        config=MODELS,
    )
    _, easy, hard = await forest.agents(started)
    assert (easy.model, hard.model) == ("scripted-mini", "scripted-opus")
    assert easy.category is not None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"model": "small", "complexity": "expert"}, "takes frontier or above"),
        ({"model": "nothing"}, "no model or alias 'nothing'"),
        ({"model": "gone"}, "no engine 'anthropic'"),
    ],
)
async def test_a_model_that_does_not_do_is_refused_with_the_reason(
    forest: Forest, given: dict[str, Any], said: str
) -> None:
    started = await forest.run(spawn(complete("no"), **given), complete("done"), config=MODELS)
    assert len(await forest.agents(started)) == 1
    (_, status, text), _ = await forest.results((await forest.agents(started))[0])
    assert status == "failed"
    assert said in text


async def test_agents_have_only_the_models_that_the_configuration_permits(forest: Forest) -> None:
    config = MODELS.model_copy(update={"defaults": MODELS.defaults.model_copy(update={"peer_models": ("small",)})})
    started = await forest.run(
        spawn(complete("no"), model="big"), spawn(complete("chosen")), complete("done"), config=config
    )
    master, child = await forest.agents(started)
    (_, status, text), *_ = await forest.results(master)
    assert status == "failed"
    assert "they may have scripted-mini" in text
    assert child.model == "scripted-mini"


async def test_a_master_whose_provider_is_missing_gets_another_model_of_its_tier(forest: Forest) -> None:
    started = await forest.run(complete("done"), config=MODELS, model="gone")
    (master,) = await forest.agents(started)
    assert (master.state, master.model) == ("COMPLETED", "scripted-opus")
    with pytest.raises(ModelNotAvailableError, match="no model or alias 'nothing'"):
        await forest.start(complete("done"), config=MODELS, model="nothing")


async def test_a_model_is_recommended_with_its_reasons(forest: Forest) -> None:
    recommend = call("recommend_model", task_description="Fix the bug in the parser and implement a test.")
    (_, status, text), _ = await results_of_master(forest, recommend, complete("done"), config=MODELS)
    assert status == "completed"
    assert text.startswith("scripted-2 of local, tier strong.")
    assert "Kind of work: coding" in text
    assert "Alternatives: scripted-opus." in text
    (_, status, text), _ = await results_of_master(forest, recommend, complete("done"))
    assert status == "failed", "This configuration has no models."


async def history(forest: Forest, agent: AgentDescriptor) -> list[HistoryEntry]:
    async with forest.harness.database.connection() as connection:
        return await load_history(connection, forest.tenant_id, agent.thread_id)
