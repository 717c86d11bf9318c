"""Agents of another tenant, named in tool calls: refused as ids that do not exist, and untouched."""

from __future__ import annotations

from typing import Any

import pytest

from nova_workers.contracts.orchestration import AgentDescriptor
from nova_workers.domain.orchestrations.rules.service import NewOrchestration
from nova_workers.domain.orchestrations.sql.agents import agents_of
from tests.requirements import proves
from tests.support.harness.trees import Forest, call, complete, script, spawn

OTHER = "ten_other"
NO_ID = "oag_00000000000000000000000000"


async def theirs(forest: Forest, *child: dict[str, Any]) -> tuple[str, AgentDescriptor]:
    """Run a tree of another tenant until its child waits or has ended; return the tree's id and the child."""
    harness = forest.harness
    own, harness.tenant_id = harness.tenant_id, OTHER
    await harness.database.execute("INSERT INTO tenants (id, name) VALUES (:id, 'Other')", id=OTHER)
    await harness.add_agent("scripted", {"name": "scripted", "engine": "scripted"})
    harness.tenant_id = own
    task = script(spawn(*child, wait=False), call("wait_for_message"), call("wait_for_message"), complete("theirs"))
    started = await forest.service.start(NewOrchestration(OTHER, "scripted", task))
    await forest.settle()
    return started.orchestration_id, (await agents(forest, started.orchestration_id))[1]


async def agents(forest: Forest, orchestration_id: str) -> list[AgentDescriptor]:
    async with forest.harness.database.connection() as connection:
        return await agents_of(connection, OTHER, orchestration_id)


async def messages(forest: Forest, orchestration_id: str) -> list[Any]:
    return await forest.harness.database.fetch(
        "SELECT * FROM orchestration_messages WHERE orchestration_id = :id ORDER BY id", id=orchestration_id
    )


@proves("orchestration.tenants")
@pytest.mark.parametrize("has_child", [False, True], ids=["without children", "with a child"])
@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("respond_to_child", {"response": "yes"}),
        ("check_child_status", {}),
        ("get_child_history", {}),
        ("send_child_prompt", {"prompt": "go"}),
        ("restart_child", {"prompt": "go"}),
    ],
)
async def test_an_agent_of_another_tenant_is_no_child(
    forest: Forest, tool: str, given: dict[str, Any], has_child: bool
) -> None:
    orchestration, child = await theirs(forest, call("ask_parent", question="May I?"), complete("their secret"))
    before = await agents(forest, orchestration), await messages(forest, orchestration)
    mine = (spawn(complete("mine")),) if has_child else ()
    calls = [call(tool, child_id=each, **given) for each in (child.id, child.id[-10:], NO_ID)]
    started = await forest.run(*mine, *calls, complete("done"))
    master, *children = await forest.agents(started)
    *_, whole, part, unknown, _ = await forest.results(master)
    known = ", ".join(each.id for each in children) or "none"
    for (_, status, text), named in ((whole, child.id), (part, child.id[-10:]), (unknown, NO_ID)):
        assert (status, text) == ("failed", f"There is no child {named!r}. There are: {known}.")
    assert (await agents(forest, orchestration), await messages(forest, orchestration)) == before


@proves("orchestration.tenants")
async def test_an_ended_agent_of_another_tenant_is_neither_restarted_nor_asked(forest: Forest) -> None:
    orchestration, child = await theirs(forest, complete("their secret"))
    assert child.state == "COMPLETED"
    before = await agents(forest, orchestration), await messages(forest, orchestration)
    started = await forest.run(
        call("restart_child", child_id=child.id, prompt=script(complete("mine now"))),
        call("consult_peer", question="What did you find?", thread_id=child.id),
        spawn(complete("mine now"), reuse=child.id),
        complete("done"),
    )
    (master,) = await forest.agents(started)
    *refused, reused, _ = await forest.results(master)
    for _, status, text in refused:
        assert (status, text) == ("failed", f"There is no child {child.id!r}. There are: none.")
    assert reused[1] == "failed"
    assert f"reuse: There is no child {child.id!r}. There are: none." in reused[2]
    assert (await agents(forest, orchestration), await messages(forest, orchestration)) == before


@proves("orchestration.tenants")
async def test_a_question_of_another_tenant_cannot_be_answered_through_an_own_child(forest: Forest) -> None:
    orchestration, _ = await theirs(forest, call("ask_parent", question="May I?"), complete("done"))
    question = next(each for each in await messages(forest, orchestration) if each["type"] == "QUESTION")
    before = await messages(forest, orchestration)
    started = await forest.run(
        spawn(call("ask_user", question="Wait"), wait=False),
        call("respond_to_child", child_id="oag", correlation_id=question["correlation_id"], response="yes"),
        complete("done"),
    )
    _, (_, status, text), _ = await forest.results((await forest.agents(started))[0])
    assert status == "failed"
    assert f"has no open question {question['correlation_id']!r}" in text
    assert await messages(forest, orchestration) == before
