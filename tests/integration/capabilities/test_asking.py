"""Whole agents with the real engine that ask people and each other: the answer is in the request that follows."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.contracts.waits import Answer
from nova_workers.domain.runs.sql.reads import get_run
from nova_workers.ledger.database import Database
from tests.integration.capabilities.stage import Stage, calls, open_stage, says
from tests.support.servers.model_server import model_server


@pytest.fixture
async def stage(database: Database, redis: Redis, settings: Settings) -> AsyncIterator[Stage]:
    async with model_server() as model, open_stage(database, redis, settings, model) as stage:
        yield stage


async def _go_on(stage: Stage, run_id: str) -> str | None:
    """Let the fleet work, and return a run's text."""
    worker = stage.harness.worker(keeper=True)
    await stage.harness.settle(worker)
    async with stage.harness.database.connection() as connection:
        return (await get_run(connection, stage.harness.tenant_id, run_id)).text


async def test_a_persons_answer_is_the_result_that_the_model_gets(stage: Stage):
    await stage.agent("clerk", capabilities={"user": {}})
    question = {"question": "Tea or coffee?", "options": ["tea", "coffee"]}
    run = await stage.run("Order", calls(("ask_user", question), narration=("I ask. ",)), agent_id="clerk")
    assert (run.status, run.waiting_for) == ("waiting", "a person's answer")
    stage.model.reply(says("Coffee it is."))
    await stage.harness.waiting.answer(stage.harness.tenant_id, run.id, None, Answer(text="coffee"))
    assert await _go_on(stage, run.id) == "Coffee it is."
    *_, asked, answered = stage.model.requests[-1]["messages"]
    assert [block["type"] for block in asked["content"]] == ["text", "tool_use"]
    assert answered["content"][0]["content"] == [{"type": "text", "text": "coffee"}]
    again = await stage.run("And now?", says("As before."), agent_id="clerk", thread_id=run.thread_id)
    assert again.text == "As before."
    assert '"coffee"' in stage.asked(-1)


async def test_an_agents_answer_is_the_result_that_the_asking_model_gets(stage: Stage):
    await stage.agent("boss", capabilities={"agents": {}})
    await stage.agent("expert", description="Knows tea.", identity="You know all about tea.")
    run = await stage.run(
        "Which tea?",
        calls(("list_agents", {})),
        calls(("ask_agent", {"agent_id": "expert", "message": "Which tea is best?"})),
        says("Darjeeling."),
        says("The expert says: Darjeeling."),
        agent_id="boss",
    )
    assert run.text == "The expert says: Darjeeling."
    assert "expert (expert): Knows tea." in stage.asked(1)
    expert, boss = stage.model.requests[2:]
    assert "You know all about tea." in str(expert["system"])
    assert len(expert["messages"]) == 1
    assert "Which tea is best?" in str(expert["messages"])
    assert "Darjeeling." in str(boss["messages"][-1])
    threads = await stage.harness.database.fetch("SELECT agent_id FROM threads ORDER BY agent_id")
    assert [thread["agent_id"] for thread in threads] == ["boss", "expert"]


@pytest.mark.parametrize(
    ("approvals", "allowed"),
    [
        ([{"tool": "ask_agent", "decision": "never"}], False),
        ([{"tool": "ask_*", "pattern": "*tea*", "decision": "ask"}, {"tool": "ask_user", "decision": "always"}], False),
        ([{"tool": "ask_agent", "decision": "always"}, {"tool": "ask_agent", "decision": "never"}], True),
    ],
)
async def test_rules_on_asking_agents_apply_to_escalations(
    stage: Stage, approvals: list[dict[str, str]], allowed: bool
):
    await stage.agent("expert")
    await stage.agent("boss", capabilities={"user": {}, "agents": {}}, permissions={"approvals": approvals})
    question = {"question": "Which?", "expires_in_s": 3600, "escalate_to": "expert"}
    run = await stage.run("Go", calls(("ask_user", question)), says("I see."), agent_id="boss")
    assert run.status == ("waiting" if allowed else "succeeded")
    if not allowed:
        assert "your calls of ask_agent need permission" in str(stage.model.requests[-1]["messages"][-1])


async def test_a_native_tool_that_needs_permission_waits_for_it(stage: Stage):
    approvals = [{"tool": "Write", "decision": "ask"}]
    await stage.agent("writer", trust="controlled", permissions={"approvals": approvals})
    write = calls(("Write", {"file_path": "tea.txt", "content": "Tea"}))
    run = await stage.run("Write it down", write, agent_id="writer")
    assert (run.status, run.waiting_for) == ("waiting", "a person's permission")
    stage.model.reply(says("It is written."))
    await stage.harness.waiting.answer(stage.harness.tenant_id, run.id, None, Answer(approve=True))
    assert await _go_on(stage, run.id) == "It is written."
    (written,) = stage.harness.settings.workspace_root.rglob("tea.txt")
    assert written.read_text() == "Tea"


@pytest.mark.parametrize(
    ("tool", "given", "says_"),
    [
        ("ask_user", {"question": ""}, "question: String should have at least 1 character"),
        ("ask_user", {"question": "?", "default": "x"}, "questions with expires_in_s"),
        (
            "ask_user",
            {"question": "?", "options": ["a"], "only_options": True, "default": "b", "expires_in_s": 5},
            "not one of the options",
        ),
        ("ask_user", {"question": "?", "only_options": True}, "for questions with options"),
        ("ask_user", {"question": "?", "expires_in_s": 5, "escalate_to": "clerk"}, "you cannot ask yourself"),
        ("ask_user", {"question": "?", "expires_in_s": 5, "escalate_to": "stranger"}, "you may not ask 'stranger'"),
        ("ask_user", {"question": "?", "expires_in_s": 5, "escalate_to": "friend"}, "There is no agent 'friend'"),
        ("wait_until", {}, "give one of the two"),
        ("wait_until", {"until": "2999-01-01T00:00:00Z"}, "more than a year away"),
        ("ask_agent", {"agent_id": "clerk", "message": "x"}, "you cannot ask yourself"),
        ("ask_agent", {"agent_id": "stranger", "message": "x"}, "you may not ask 'stranger'"),
        ("ask_agent", {"agent_id": "friend", "message": "x"}, "There is no agent 'friend'"),
    ],
)
async def test_an_invalid_question_is_explained_to_the_model(
    stage: Stage, tool: str, given: dict[str, object], says_: str
):
    grants = {"user": {}, "agents": {"config": {"may_ask": ["friend", "clerk"]}}}
    await stage.agent("clerk", capabilities=grants)
    await stage.agent("stranger")
    run = await stage.run("Go", calls((tool, dict(given))), says("I see."), agent_id="clerk")
    assert (run.status, run.text) == ("succeeded", "I see.")
    result = stage.model.requests[-1]["messages"][-1]["content"][0]
    assert result["is_error"] is True
    assert says_ in str(result["content"])
