"""Trees of agents: spawned, waited for, asked, restarted and ended."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from nova_workers.base.errors import Unavailable
from nova_workers.contracts.orchestration import OrchestrationLimits, TreeSpending
from nova_workers.contracts.runs import Claim
from nova_workers.contracts.waits import Answer
from nova_workers.domain.orchestrations.rules.config.values import ExpertProfile, OrchestrationConfig
from nova_workers.domain.orchestrations.sql.budgets import take_last_call
from nova_workers.domain.orchestrations.sql.open_trees import tree_shared
from nova_workers.domain.runs.sql.claim import claim_next
from nova_workers.domain.usage.sql.budgets import reserve
from tests.requirements import proves
from tests.support.harness.trees import MODELS, Forest, call, complete, script, spawn


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


async def test_the_number_of_active_agents_is_bounded(forest: Forest) -> None:
    children = [{"prompt": script(complete("x"))} for _ in range(3)]
    started = await forest.run(
        call("spawn_children_parallel", children=children), limits=OrchestrationLimits(max_concurrent_agents=3)
    )
    assert len(await forest.agents(started)) == 1, "All of the children are refused, or none."
    ((_, status, text),) = await forest.results((await forest.agents(started))[0])
    assert status == "failed"
    assert "may have 3" in text


async def test_a_child_is_fresh_also_after_an_equal_one(forest: Forest) -> None:
    again = spawn(complete("two"), role="REVIEWER")
    started = await forest.run(spawn(complete("one")), spawn(complete("two")), again, again, complete("done"))
    agents = await forest.agents(started)
    assert [agent.activations for agent in agents] == [1, 1, 1, 1, 1]
    assert len({agent.thread_id for agent in agents}) == 5
    assert [agent.name for agent in agents[1:]] == ["Worker", "Worker 2", "Reviewer", "Reviewer 2"]


async def test_an_expert_is_fresh_too(forest: Forest) -> None:
    config = OrchestrationConfig.model_validate({"experts": {"wise": {"expert_id": "wise", "system_prompt": "Wise."}}})
    ask = call("consult_expert", expert_id="wise", question=script({"say": "42"}))
    started = await forest.run(ask, ask, complete("done"), config=config)
    assert [agent.activations for agent in await forest.agents(started)] == [1, 1, 1]


async def test_requests_to_experts_and_peers_and_their_answers_have_types_of_their_own(forest: Forest) -> None:
    wise = {"wise": ExpertProfile(expert_id="wise", name="Wise", system_prompt="Wise.")}
    config = MODELS.model_copy(update={"experts": wise})
    ask = {"question": script({"say": "42"})}
    expert, peer = call("consult_expert", expert_id="wise", **ask), call("consult_peer", peer="small", **ask)
    started = await forest.run(spawn(complete("one")), expert, peer, complete("done"), config=config)
    assert await forest.states(started) == ["COMPLETED"] * 4
    runs = await forest.harness.database.fetch(
        "SELECT t.tools_available AS tools FROM orchestration_agents a"
        " JOIN turns t ON t.thread_id = a.thread_id ORDER BY a.id"
    )
    _, worker, _, peer = (row["tools"] for row in runs)
    assert "ask_parent" in worker
    assert peer == [], "It answers from what it was asked."
    sent = await forest.harness.database.fetch("SELECT type FROM orchestration_messages ORDER BY id")
    assert [row["type"] for row in sent] == [
        *("SPAWN_REQUEST", "TASK_RESULT"),
        *("EXPERT_REQUEST", "EXPERT_RESPONSE"),
        *("PEER_REQUEST", "PEER_RESPONSE"),
    ]


async def test_a_further_question_to_a_peer_has_the_type_of_the_first(forest: Forest) -> None:
    first = call("consult_peer", peer="small", question=script({"say": "42"}))
    again = call("consult_peer", thread_id="oag", question=script({"say": "43"}))
    started = await forest.run(first, again, complete("done"), config=MODELS)
    assert [agent.activations for agent in await forest.agents(started)] == [1, 2]
    sent = await forest.harness.database.fetch("SELECT type FROM orchestration_messages ORDER BY id")
    assert [row["type"] for row in sent] == ["PEER_REQUEST", "PEER_RESPONSE"] * 2


async def test_an_ended_child_that_is_named_takes_the_task_with_its_identity(forest: Forest) -> None:
    started = await forest.run(spawn(complete("one")), spawn(complete("two"), reuse="oag"), complete("done"))
    agents = await forest.agents(started)
    assert [agent.activations for agent in agents] == [1, 2]
    assert agents[1].summary == "two"


async def test_an_idle_child_that_is_named_takes_the_task(forest: Forest) -> None:
    started = await forest.run(
        spawn(call("wait_for_message"), complete("was idle"), wait=False),
        call("wait_for_message", timeout=0.01),
        spawn(complete("unused"), reuse="oag"),
        complete("done"),
    )
    while await forest.harness.waiting.sweep() == 0:
        continue
    await forest.settle()
    agents = await forest.agents(started)
    assert [agent.activations for agent in agents] == [1, 1]
    assert agents[1].summary == "was idle"


async def test_a_child_that_is_named_and_does_not_fit_is_refused_with_what_to_do(forest: Forest) -> None:
    attempts: list[tuple[dict[str, Any], str]] = [
        ({"reuse": "oag_other"}, "reuse: There is no child 'oag_other'. There are: oag_"),
        ({"role": "REVIEWER"}, "reviewers are always fresh"),
        ({"model": "scripted-2"}, "its model is "),
        ({"complexity": "simple"}, "complexity chooses the model of a fresh child"),
        ({"tools": []}, "it holds Edit, Glob, Grep, Read, WebFetch, WebSearch, Write, notes, which this request"),
        ({"mcp_servers": ["tagged"]}, "it does not have the plugins tagged"),
        ({"name": "other"}, "its name is 'Worker'"),
    ]
    await forest.harness.add_agent(
        "owner", {"name": "Owner", "engine": "scripted", "trust": "controlled", "capabilities": {"notes": {}}}
    )
    plugins = {"tagged": {"type": "http", "url": "http://127.0.0.1:9/mcp", "tags": ["nowhere"]}}
    config = MODELS.model_copy(update={"plugins": OrchestrationConfig.model_validate({"plugins": plugins}).plugins})
    started = await forest.run(
        spawn(complete("one")),
        *(call("spawn_child", prompt=script(complete("two")), **{"reuse": "oag", **given}) for given, _ in attempts),
        complete("done"),
        agent_id="owner",
        config=config,
    )
    master, child = await forest.agents(started)
    assert child.activations == 1
    _, *refused, _ = await forest.results(master)
    for (_, status, text), (_, said) in zip(refused, attempts, strict=True):
        assert status == "failed"
        assert said in text
        assert text.endswith("Leave out `reuse` for a fresh child.")


async def test_a_child_is_reused_by_its_parent_alone_and_for_one_task_at_a_time(forest: Forest) -> None:
    twice = [{"prompt": script(complete("x")), "reuse": "oag"}] * 2
    started = await forest.run(
        spawn(spawn(complete("grandchild")), complete("child")),
        call("spawn_children_parallel", children=twice),
        spawn(complete("taken"), reuse="oag", tools=["Read"]),
        complete("done"),
    )
    master, *below = await forest.agents(started)
    assert [agent.activations for agent in below] == [1, 1]
    _, (_, _, parallel), *_ = await forest.results(master)
    assert f"reuse: child {below[0].id!r} is PENDING and has work" in parallel


async def test_a_result_with_a_schema_is_json_that_fulfils_it_or_the_child_fails(forest: Forest) -> None:
    schema = {"type": "object", "properties": {"bugs": {"type": "integer"}}, "required": ["bugs"]}
    started = await forest.run(
        call("spawn_child", prompt=script({"say": '{"bugs": 3}'}), output_schema=schema),
        call("spawn_child", prompt=script({"say": "Three."}), output_schema=schema),
        call("spawn_child", prompt=script(complete("three")), output_schema={"type": "strnig"}),
        complete("done"),
    )
    master, counted, wrong = await forest.agents(started)
    assert (counted.state, counted.summary) == ("COMPLETED", '{"bugs":3}')
    assert (wrong.state, wrong.error_code) == ("FAILED", "model_error"), "Neither is the second answer."
    first, second, third, _ = await forest.results(master)
    assert first[2].endswith('completed its task:\n{"bugs":3}')
    assert "did not complete its task (model_error)" in second[2]
    assert (third[1], third[2][:34]) == ("failed", "output_schema.type: it is no JSON ")


async def test_a_child_whose_result_has_a_schema_cannot_complete_in_words(forest: Forest) -> None:
    words = {"tool": {"name": "task_complete", "input": {"summary": "x"}, "fail": "It is not held."}}
    started = await forest.run(
        call("spawn_child", prompt=script(words, {"say": "{}"}), output_schema={"type": "object"}), complete("done")
    )
    child = (await forest.agents(started))[1]
    assert [status for _, status, _ in await forest.results(child)] == ["failed"]
    assert (child.state, child.summary) == ("COMPLETED", "{}")


async def test_a_child_that_is_not_awaited_reports_to_wait_for_message(forest: Forest) -> None:
    started = await forest.run(spawn(complete("later"), wait=False), call("wait_for_message"), complete("done"))
    master, child = await forest.agents(started)
    assert "later" in (await forest.results(master))[1][2]
    assert child.state == "COMPLETED"


async def test_a_prompt_that_comes_as_a_child_ends_restarts_it(forest: Forest) -> None:
    started = await forest.run(
        spawn({"say": "first"}, wait=False, name="a"),
        call("send_child_prompt", child_id="oag", prompt=script(complete("second"))),
        call("wait_for_message"),
        call("wait_for_message"),
        complete("done"),
    )
    master, child = await forest.agents(started)
    results = await forest.results(master)
    assert "first" in results[2][2]
    assert child.activations == 2
    assert child.summary == "second"
    assert "second" in results[3][2]


async def test_agents_that_wait_for_each_other_lose_the_deepest(forest: Forest) -> None:
    started = await forest.run(
        spawn(spawn(call("wait_for_message"), name="grandchild"), {"say": "unblocked"}, name="child"),
        complete("done"),
    )
    master, child, grandchild = await forest.agents(started)
    assert [master.state, child.state, grandchild.state] == ["COMPLETED", "COMPLETED", "FAILED"]
    assert grandchild.error_code == "deadlock_detected"
    ((_, status, text),) = await forest.results(child)
    assert status == "failed"
    assert "deadlock_detected" in text
    assert await forest.harness.status(grandchild.run_id) == "canceled"


async def test_of_agents_that_all_wait_for_messages_the_deepest_is_ended_and_the_others_go_on(forest: Forest) -> None:
    wait = call("wait_for_message")
    started = await forest.run(
        spawn(spawn(wait, wait=False, name="grandchild"), wait, complete("unblocked"), wait=False, name="child"),
        wait,
        complete("done"),
    )
    assert await forest.states(started) == ["COMPLETED", "COMPLETED", "FAILED"]


async def test_a_waiting_parent_is_woken_with_a_question_before_any_agent_is_ended(forest: Forest) -> None:
    started = await forest.run(
        spawn(call("ask_parent", question="Tabs or spaces?"), complete("formatted"), wait=False, name="asks"),
        call("ask_user", question="Has it asked?"),
        spawn(call("wait_for_message"), complete("prompted"), name="waits"),
        call("ask_user", question="Which?"),
    )
    master, *_ = await forest.agents(started)
    await forest.harness.waiting.answer(forest.tenant_id, master.run_id, None, Answer(text="yes"))
    await forest.settle()
    master, asks, waits = await forest.agents(started)
    assert [master.state, asks.state, waits.state] == ["RUNNING", "WAITING_FOR_PARENT", "WAITING_FOR_PARENT"]
    _, _, (name, status, text), _ = await forest.results(master)
    assert (name, status) == ("spawn_child", "completed")
    assert text.startswith(f"Question of {asks.id}")
    assert "receive what you waited for with wait_for_message" in text


async def test_a_parent_that_waits_on_after_the_question_loses_the_deepest_child(forest: Forest) -> None:
    wait = call("wait_for_message")
    started = await forest.run(
        spawn(call("ask_parent", question="Tabs or spaces?"), complete("formatted"), wait=False, name="asks"),
        spawn(wait, complete("prompted"), name="waits"),
        wait,
        wait,
        complete("done"),
    )
    assert await forest.states(started) == ["COMPLETED", "FAILED", "FAILED"]


async def test_a_cycle_through_wait_for_message_is_broken(forest: Forest) -> None:
    started = await forest.run(spawn(call("wait_for_message"), wait=False), call("wait_for_message"), complete("done"))
    assert await forest.states(started) == ["COMPLETED", "FAILED"]


async def test_a_kill_ends_the_branch_and_tells_the_parent(forest: Forest) -> None:
    started = await forest.start(
        spawn(spawn(call("ask_user", question="Go on?"), name="leaf"), name="branch"), complete("done")
    )
    await forest.settle()
    master, branch, leaf = await forest.agents(started)
    assert leaf.state == "RUNNING", "A wait for a person is none of the waiting states."
    killed, _ = await forest.service.kill(forest.tenant_id, started.orchestration_id, branch.id, "not needed")
    assert set(killed) == {branch.id, leaf.id}
    again, _ = await forest.service.kill(forest.tenant_id, started.orchestration_id, branch.id, "again")
    assert again == []
    await forest.settle()
    master, branch, leaf = await forest.agents(started)
    assert [master.state, branch.state, leaf.state] == ["COMPLETED", "KILLED", "KILLED"]
    (_, status, text), _ = await forest.results(master)
    assert status == "failed"
    assert "not needed" in text
    assert {await forest.harness.status(agent.run_id) for agent in (branch, leaf)} == {"canceled"}


async def test_a_continuation_restarts_the_master_with_its_identity(forest: Forest) -> None:
    started = await forest.run(complete("first"))
    await forest.service.continue_(forest.tenant_id, started.orchestration_id, script(complete("second")))
    await forest.settle()
    (master,) = await forest.agents(started)
    assert (master.id, master.activations, master.summary) == (started.master_id, 2, "second")


async def test_the_token_budget_holds_for_the_whole_tree(forest: Forest) -> None:
    used = {"say": "x", "usage": {"input_tokens": 800, "output_tokens": 100}, "tool": {"name": "look"}}
    started = await forest.run(
        spawn(used, used, used, complete("too late"), name="spender"),
        complete("The rest is missing."),
        limits=OrchestrationLimits(token_budget=2_000),
    )
    master, child = await forest.agents(started)
    assert (child.state, child.error_code) == ("FAILED", "limit_tokens")
    assert (master.state, master.summary) == ("COMPLETED", "The rest is missing."), "The master may sum up."


@proves("budgets.reserved")
async def test_agents_side_by_side_do_not_exceed_the_budget_of_their_tree(forest: Forest) -> None:
    slow = {"say": "x", "sleep_s": 0.1, "usage": {"input_tokens": 800, "output_tokens": 100}, "tool": {"name": "look"}}
    started = await forest.start(
        {"tool": [spawn(slow, slow, name=f"child {at}")["tool"] for at in range(4)]},
        complete("done"),
        limits=OrchestrationLimits(token_budget=3_500),
    )
    await forest.settle(workers=2)
    master, *children = await forest.agents(started)
    used = await forest.harness.database.fetchval("SELECT sum(input_tokens + output_tokens) FROM turns WHERE steps > 0")
    assert len(children) == 4
    assert used <= 3_500
    assert master.summary == "done"


@proves("budgets.reserved")
async def test_what_an_agent_has_used_and_not_committed_is_spent_and_not_waited_for(forest: Forest) -> None:
    started = await forest.start(complete("done"))
    (master,) = await forest.agents(started)
    async with forest.harness.database.connection() as connection:
        claim = await claim_next(
            connection, master.thread_id, worker_id="wkr_1", lease_ttl_s=60.0, max_attempts=3, caps_locked=True
        )
        assert isinstance(claim, Claim)
        opened, used = TreeSpending(10, 0.5), TreeSpending(5, 0.25)
        await reserve(connection, claim, opened=opened, used=used)
        assert await tree_shared(connection, started.orchestration_id, except_run_id="run_1") == (used, opened)
        nothing = TreeSpending(0, 0.0)
        assert await tree_shared(connection, started.orchestration_id, except_run_id=claim.run_id) == (nothing, nothing)


USED = {"say": "x", "usage": {"input_tokens": 800, "output_tokens": 100}, "tool": {"name": "look"}}


async def test_a_master_that_spends_the_budget_has_one_call_to_sum_up(forest: Forest) -> None:
    limits = OrchestrationLimits(token_budget=2_000)
    sums_up, goes_on, waits = [
        await forest.run(*[USED] * 3, *last, limits=limits)
        for last in (
            [{"say": "That is all."}],
            [USED, complete("too late")],
            [call("ask_user", question="More?"), complete("too late")],
        )
    ]
    (master,) = await forest.agents(sums_up)
    assert master.state == "COMPLETED"
    assert (master.summary or "").startswith("(steered: The budget of this orchestration is spent. This is your last")
    assert (master.summary or "").endswith("That is all.")
    (master,) = await forest.agents(goes_on)
    assert (master.state, master.error_code) == ("FAILED", "limit_tokens")
    assert len(await forest.results(master)) == 4
    (master,) = await forest.agents(waits)
    await forest.harness.waiting.answer(forest.tenant_id, master.run_id, None, Answer(text="Yes."))
    await forest.settle()
    (master,) = await forest.agents(waits)
    assert (master.state, master.error_code) == ("FAILED", "budget_exceeded"), "It had its call."


async def test_a_last_call_whose_step_was_not_committed_is_made_again_and_no_other(forest: Forest) -> None:
    started = await forest.run(complete("done"))
    async with forest.harness.database.connection() as connection:
        taken = [
            await take_last_call(connection, started.orchestration_id, "x", turn_id=turn_id, step=step)
            for turn_id, step in (("trn_1", 3), ("trn_1", 3), ("trn_1", 4), ("trn_2", 1))
        ]
    assert taken == [True, True, False, True]


async def test_people_are_warned_once_when_half_and_four_fifths_of_the_budget_are_used(
    forest: Forest,
) -> None:
    started = await forest.run(
        spawn(*[USED] * 6, complete("first")),
        spawn(*[USED] * 3, complete("second")),
        complete("done"),
        limits=OrchestrationLimits(token_budget=10_000),
    )
    assert await forest.states(started) == ["COMPLETED", "COMPLETED", "COMPLETED"]
    sent = await forest.harness.database.fetch(
        "SELECT payload ->> 'text' AS text, source_id FROM orchestration_messages"
        " WHERE orchestration_id = :orchestration_id AND type = 'PROGRESS_UPDATE' ORDER BY id",
        orchestration_id=started.orchestration_id,
    )
    warned = [row["text"] for row in sent]
    half, four_fifths = (int(text.split(" % of the budget of this orchestration (")[0]) for text in warned)
    assert 50 <= half < 80 <= four_fifths < 100
    readers = await forest.harness.database.fetchval(
        "SELECT count(*) FROM messages WHERE content::text LIKE '%steered: 5_ \\% of the budget%Plan the rest%'"
    )
    assert readers == 2, "The child that works, and the master when it goes on."
    assert {row["source_id"] for row in sent} == {started.master_id}


async def test_an_agent_is_warned_although_its_worker_died_after_the_step_that_used_half_of_the_budget(
    forest: Forest,
) -> None:
    harness = forest.harness
    started = await forest.start(*[USED] * 3, {"say": "done"}, limits=OrchestrationLimits(token_budget=3_500))
    lost = harness.worker(publisher=False)
    lost.faults.plan("crash_after", "commit_step", nth=2)
    with suppress(Unavailable):
        await harness.settle(lost)
    await lost.crash()
    harness.workers.remove(lost)
    await harness.recover()
    await harness.database.execute("UPDATE runs SET rang_at = now() - interval '1 hour' WHERE status = 'queued'")
    await harness.reconciler.reconcile()
    await forest.settle()
    (master,) = await forest.agents(started)
    texts = await harness.database.fetchval(
        "SELECT string_agg(m.content::text, ' ' ORDER BY m.seq) FROM messages m JOIN runs r ON r.turn_id = m.turn_id"
        " WHERE r.id = :run_id",
        run_id=master.run_id,
    )
    assert master.state == "COMPLETED"
    assert texts.count("(steered: 51 % of the budget of this orchestration (1,800 of 3,500 tokens) is used") == 1
    assert texts.count("steered: ") == 1


async def test_an_orchestration_ends_when_its_time_is_spent(forest: Forest) -> None:
    started = await forest.start(spawn(call("ask_user", question="?")), limits=OrchestrationLimits(time_budget_s=3_600))
    await forest.settle()
    await forest.harness.database.execute("UPDATE orchestrations SET deadline_at = now() - interval '1 second'")
    await forest.harness.ticker.tick()
    await forest.settle()
    assert await forest.states(started) == ["KILLED", "KILLED"]


async def test_a_run_that_was_canceled_in_the_queue_is_reported_by_the_tick(forest: Forest) -> None:
    started = await forest.start(spawn(complete("x")), complete("done"))
    harness = forest.harness
    await (await harness.start_next(harness.worker()))
    (bell,) = harness.bells.take()
    await harness.canceller.cancel(forest.tenant_id, bell.run_id)
    await harness.ticker.tick()
    await forest.settle()
    assert await forest.states(started) == ["COMPLETED", "KILLED"]
