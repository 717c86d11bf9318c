"""Runs that wait: for a person, for another agent, for permission, for a time. They hold nothing, and continue once."""

from __future__ import annotations

import asyncio
from typing import Any, get_args

import orjson
import pytest

from nova_workers.base.errors import Conflict, IllegalTransition, InvalidInput, NotFound
from nova_workers.contracts.runs import Accepted
from nova_workers.contracts.waits import Answer
from nova_workers.domain.runs.rules.applying import CancelApplier
from nova_workers.domain.runs.rules.cancel import Canceller
from nova_workers.domain.runs.rules.control import ControlChannel
from nova_workers.domain.runs.rules.moves import Mover
from nova_workers.domain.runs.rules.waiting import Waiting
from nova_workers.domain.threads.rules.lock import ThreadLocks
from nova_workers.domain.threads.sql.records import delete_thread
from nova_workers.domain.waits.sql.records import escalate, find_due_waits
from nova_workers.ledger.work import Work
from tests.requirements import proves
from tests.support.harness.fault_injection import Crashed, Fault, FaultInjectingDatabase, FaultInjector
from tests.support.harness.invariants import check_any_time
from tests.support.harness.manual_clock import ManualClock
from tests.support.harness.planned_engine import plan
from tests.support.harness.workers import Harness, Worker
from tests.support.points import each_once
from tests.support.waiting import until

_ASK: dict[str, Any] = {"name": "ask_user", "input": {"question": "Tea or coffee?", "options": ["tea", "coffee"]}}
_CHOOSE: dict[str, Any] = {**_ASK, "input": {**_ASK["input"], "only_options": True}}
_BLOCKED = """
SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')
"""


def script(*items: dict[str, Any]) -> str:
    return orjson.dumps({"script": list(items)}).decode()


def ask(agent_id: str, *items: dict[str, Any]) -> dict[str, Any]:
    """Return a call that asks an agent to play items."""
    return {"name": "ask_agent", "input": {"agent_id": agent_id, "message": script(*items)}}


@pytest.fixture
async def fleet(harness: Harness) -> Harness:
    """A fleet whose scripted agents may ask people and each other."""
    grants = {"user": {}, "agents": {}, "memory": {}}
    for agent_id in ("a", "b", "c", "d"):
        await harness.add_agent(agent_id, {"name": agent_id, "engine": "scripted", "capabilities": grants})
    careful = {"approvals": [{"tool": "memory_*", "decision": "ask"}]}
    await harness.add_agent(
        "careful", {"name": "careful", "engine": "scripted", "capabilities": grants, "permissions": careful}
    )
    return harness


async def _begin(fleet: Harness, *items: dict[str, Any], agent_id: str = "a", **fields: Any) -> Accepted:
    """Send a script, and run it until it ends or waits."""
    run = await fleet.submit(script(*items), agent_id=agent_id, **fields)
    await fleet.settle(*(fleet.workers or [fleet.worker()]))
    return run


async def _result_of(fleet: Harness, run_id: str, at: int = 0) -> tuple[str, str]:
    """Return status and text of a call of a run."""
    rows = await fleet.database.fetch(
        "SELECT c.status, c.result FROM tool_calls c JOIN runs r ON r.turn_id = c.turn_id WHERE r.id = :run_id"
        " ORDER BY c.sequence",
        run_id=run_id,
    )
    return rows[at]["status"], rows[at]["result"][0]["text"]


@proves("suspend.holds-nothing", "suspend.answer")
async def test_a_question_waits_without_a_worker_and_its_answer_is_the_tools_result(fleet: Harness):
    run = await _begin(fleet, {"say": "One moment. ", "tool": _ASK}, {"say": "As you like."})
    row = await fleet.run(run.run_id)
    assert (row["status"], row["lease_expires_at"], row["worker_id"]) == ("waiting", None, None)
    assert not any(worker.busy for worker in fleet.workers)
    assert await fleet.redis.keys("nova:lock:*") == []
    await check_any_time(fleet.database)
    await fleet.waiting.answer(fleet.tenant_id, run.run_id, None, Answer(text="coffee"))
    await fleet.settle(fleet.worker())
    row = await fleet.run(run.run_id)
    assert (row["status"], row["result_text"], row["attempt"], row["losses"]) == ("succeeded", "As you like.", 2, 0)
    assert await _result_of(fleet, run.run_id) == ("completed", "coffee")
    await check_any_time(fleet.database)


async def test_runs_queued_behind_a_waiting_run_come_after_it(fleet: Harness):
    run = await _begin(fleet, {"tool": _ASK}, {"say": "first"})
    later = await fleet.submit(script({"say": "second"}), run.thread_id)
    await fleet.settle(*fleet.workers)
    assert await fleet.status(later.run_id) == "queued"
    await fleet.waiting.answer(fleet.tenant_id, run.run_id, None, Answer(text="tea"))
    await fleet.settle(*fleet.workers)
    heads = await fleet.database.fetch("SELECT run_id FROM thread_heads WHERE move = 'turn' ORDER BY id")
    assert [head["run_id"] for head in heads] == [run.run_id, later.run_id]


@proves("suspend.answer")
async def test_the_first_answer_counts_and_an_invalid_one_is_refused(fleet: Harness):
    run = await _begin(fleet, {"tool": _CHOOSE}, {"say": "ok"})
    say = fleet.waiting.answer
    with pytest.raises(InvalidInput, match="not one of the options 'tea', 'coffee'"):
        await say(fleet.tenant_id, run.run_id, None, Answer(text="water"))
    with pytest.raises(InvalidInput, match="give its answer as text"):
        await say(fleet.tenant_id, run.run_id, None, Answer(approve=True))
    with pytest.raises(NotFound):
        await say("ten_other", run.run_id, None, Answer(text="tea"))
    await say(fleet.tenant_id, run.run_id, None, Answer(text="tea"))
    with pytest.raises(IllegalTransition, match="was answered before"):
        await say(fleet.tenant_id, run.run_id, None, Answer(text="coffee"))
    await fleet.settle(*fleet.workers)
    with pytest.raises(IllegalTransition, match="was answered before"):
        await say(fleet.tenant_id, run.run_id, None, Answer(text="coffee"))
    other = await _begin(fleet, {"say": "no question"})
    with pytest.raises(IllegalTransition, match="does not wait; it is succeeded"):
        await say(fleet.tenant_id, other.run_id, None, Answer(text="coffee"))
    assert await _result_of(fleet, run.run_id) == ("completed", "tea")


async def test_an_answer_may_be_given_again(fleet: Harness):
    run = await _begin(fleet, {"tool": _ASK}, {"tool": _ASK}, {"say": "ok"})

    async def say(answer: Answer, wait_id: str | None = None) -> str:
        return (await fleet.waiting.answer(fleet.tenant_id, run.run_id, wait_id, answer)).status

    assert await say(Answer(text="tea", by="Ada")) == "queued"
    # Spaces around it are none of the answer's.
    assert await say(Answer(text=" tea\n", by="Ada")) == "queued"
    for other in (Answer(text="tea", by="Bob"), Answer(text="tea", approve=True, by="Ada"), Answer(approve=True)):
        with pytest.raises(IllegalTransition, match="was answered before"):
            await say(other)
    await fleet.settle(*fleet.workers)
    first, second = await fleet.database.fetch("SELECT id, status FROM run_waits ORDER BY id")
    assert (first["status"], second["status"]) == ("resolved", "open")
    # It answers nothing else.
    assert await say(Answer(text="tea", by="Ada"), first["id"]) == "waiting"
    assert await say(Answer(text="tea", by="Ada"), second["id"]) == "queued"
    await fleet.settle(*fleet.workers)
    assert await say(Answer(text="tea", by="Ada"), first["id"]) == "succeeded"
    # Which of the two is meant is not known.
    with pytest.raises(IllegalTransition, match="was answered before"):
        await say(Answer(text="tea", by="Ada"))


async def test_a_default_is_no_answer_that_may_be_given_again(fleet: Harness):
    bounded = {**_ASK["input"], "default": "tea", "expires_in_s": 600}
    run = await _begin(fleet, {"tool": {**_ASK, "input": bounded}}, {"say": "ok"})
    await fleet.database.execute("UPDATE run_waits SET due_at = now()")
    await fleet.reconciler.reconcile()
    assert await fleet.status(run.run_id) == "queued"
    with pytest.raises(IllegalTransition, match="was answered before"):
        await fleet.waiting.answer(fleet.tenant_id, run.run_id, None, Answer(text="tea"))


async def test_a_question_with_options_takes_another_answer_too(fleet: Harness):
    run = await _begin(fleet, {"tool": _ASK}, {"say": "ok"})
    stored = await fleet.database.fetchval("SELECT request FROM run_waits WHERE run_id = :run_id", run_id=run.run_id)
    assert "only_options" not in stored, "The release before this field reads the request."
    await fleet.waiting.answer(fleet.tenant_id, run.run_id, None, Answer(text="neither, water"))
    await fleet.settle(*fleet.workers)
    assert await _result_of(fleet, run.run_id) == ("completed", "neither, water")


async def test_a_run_with_several_questions_continues_after_the_last_answer(fleet: Harness):
    memory = {"name": "memory_save", "input": {"content": "They were asked"}}
    run = await _begin(fleet, {"tool": [_ASK, memory, _ASK]}, {"say": "both"})
    waits = await fleet.database.fetch("SELECT id FROM run_waits WHERE run_id = :run_id ORDER BY id", run_id=run.run_id)
    with pytest.raises(Conflict, match="say which with wait_id"):
        await fleet.waiting.answer(fleet.tenant_id, run.run_id, None, Answer(text="tea"))
    await fleet.waiting.answer(fleet.tenant_id, run.run_id, waits[0]["id"], Answer(text="tea"))
    await fleet.settle(*fleet.workers)
    assert await fleet.status(run.run_id) == "waiting"
    await fleet.waiting.answer(fleet.tenant_id, run.run_id, None, Answer(text="coffee"))
    await fleet.settle(*fleet.workers)
    assert (await fleet.run(run.run_id))["result_text"] == "both"
    assert await _result_of(fleet, run.run_id, 0) == ("completed", "tea")
    assert await _result_of(fleet, run.run_id, 2) == ("completed", "coffee")
    assert await fleet.database.fetchval("SELECT count(*) FROM memories") == 1


@pytest.mark.parametrize(
    ("limits", "status", "said"),
    [
        ({"expires_in_s": 60, "default": "tea"}, "completed", "tea\n(Nobody answered in time; this is the default.)"),
        ({"expires_in_s": 60}, "failed", "The person did not answer in time."),
    ],
)
@proves("suspend.expiry")
async def test_an_unanswered_question_ends_in_its_default_or_without_an_answer(
    fleet: Harness, limits: dict[str, Any], status: str, said: str
):
    question = {"name": "ask_user", "input": _ASK["input"] | limits}
    run = await _begin(fleet, {"tool": question}, {"say": "then so"})
    await fleet.reconciler.reconcile()
    assert await fleet.status(run.run_id) == "waiting"
    await _pass_time(fleet)
    await fleet.settle(*fleet.workers)
    assert (await fleet.run(run.run_id))["result_text"] == "then so"
    assert await _result_of(fleet, run.run_id) == (status, said)


@proves("suspend.expiry")
async def test_an_unanswered_question_goes_to_the_agent_that_it_names(fleet: Harness):
    given = {"question": script({"say": "tea, then"}), "expires_in_s": 9, "escalate_to": "planned"}
    question = {"name": "ask_user", "input": given}
    run = await _begin(fleet, {"tool": question}, {"say": "settled"})
    await _pass_time(fleet)
    asked = await fleet.database.fetchrow(
        "SELECT agent_id, depth, content FROM runs WHERE parent_run_id = :parent_run_id", parent_run_id=run.run_id
    )
    assert asked is not None
    assert (asked["agent_id"], asked["depth"]) == ("planned", 1)
    assert "did not answer in time" in asked["content"][0]["text"]
    await fleet.settle(*fleet.workers)
    assert (await fleet.run(run.run_id))["result_text"] == "settled"


async def test_a_person_may_still_answer_while_an_agent_is_asked_in_their_place(fleet: Harness):
    question = {"name": "ask_user", "input": _ASK["input"] | {"expires_in_s": 9, "escalate_to": "planned"}}
    run = await _begin(fleet, {"tool": question}, {"say": "settled"})
    await _pass_time(fleet)
    await fleet.waiting.answer(fleet.tenant_id, run.run_id, None, Answer(text="coffee"))
    await fleet.settle(*fleet.workers)
    assert await _result_of(fleet, run.run_id) == ("completed", "coffee")
    # The agent's answer is no longer awaited.
    asked = await fleet.database.fetchval(
        "SELECT status FROM runs WHERE parent_run_id = :parent_run_id", parent_run_id=run.run_id
    )
    assert asked == "canceled"


async def test_an_agent_is_asked_in_a_persons_place_once_although_two_reconcilers_see_the_deadline(fleet: Harness):
    run, faults, slow = await _begin_escalation(fleet, hold="lock")
    async with asyncio.TaskGroup() as group:
        group.create_task(slow.sweep())
        await faults.reached()
        await fleet.waiting.sweep()
        faults.step()
    assert await fleet.status(run.run_id) == "waiting"
    assert await fleet.status(await _child_of(fleet, run.run_id)) == "queued"


async def test_an_answer_that_meets_the_deadline_stops_the_agent_that_is_asked_in_the_persons_place(fleet: Harness):
    run, faults, slow = await _begin_escalation(fleet, hold="lock")
    async with asyncio.TaskGroup() as group:
        group.create_task(slow.answer(fleet.tenant_id, run.run_id, None, Answer(text="coffee")))
        await faults.reached()
        await fleet.waiting.sweep()
        faults.step()
    assert await _result_of(fleet, run.run_id) == ("completed", "coffee")
    assert await fleet.status(await _child_of(fleet, run.run_id)) == "canceled"


@proves("suspend.cancel")
async def test_a_cancel_that_meets_the_deadline_stops_the_agent_that_is_asked_in_the_persons_place(fleet: Harness):
    run, _, _ = await _begin_escalation(fleet)
    async with asyncio.TaskGroup() as group:
        async with fleet.database.transaction() as connection:
            (wait,) = await find_due_waits(connection, limit=2)
            assert await escalate(connection, wait, "planned", "Tea or coffee?")
            group.create_task(fleet.canceller.cancel(fleet.tenant_id, run.run_id))
            await until(lambda: fleet.database.fetchval(_BLOCKED), "the cancellation to wait")
    assert await fleet.status(await _child_of(fleet, run.run_id)) == "canceled"


async def test_an_agent_that_does_not_answer_in_time_is_stopped(fleet: Harness):
    call = ask("b", {"tool": _ASK}, {"say": "too late"})
    call["input"]["timeout_s"] = 60
    run = await _begin(fleet, {"tool": call}, {"say": "without b"}, priority=7)
    (child,) = await fleet.database.fetch(
        "SELECT id, priority FROM runs WHERE parent_run_id = :parent_run_id", parent_run_id=run.run_id
    )
    assert child["priority"] == 7
    await _pass_time(fleet)
    await fleet.settle(*fleet.workers)
    assert (await fleet.run(run.run_id))["result_text"] == "without b"
    assert await _result_of(fleet, run.run_id) == ("failed", "b did not answer in time.")
    assert await fleet.status(child["id"]) == "canceled"
    await check_any_time(fleet.database)


async def test_a_run_continues_at_its_time(fleet: Harness):
    nap = {"name": "wait_until", "input": {"seconds": 3600}}
    run = await _begin(fleet, {"tool": nap}, {"say": "rested"})
    await _pass_time(fleet)
    await fleet.settle(*fleet.workers)
    row = await fleet.run(run.run_id)
    assert row["result_text"] == "rested"
    assert (await _result_of(fleet, run.run_id))[1].startswith("It is 2")


@proves("suspend.child", "suspend.one-slot")
async def test_a_chain_of_three_agents_finishes_on_one_slot(fleet: Harness):
    worker = fleet.worker()
    run = await fleet.submit(
        script({"tool": ask("b", {"tool": ask("c", {"say": "from c"})}, {"say": "from b"})}, {"say": "from a"}),
        agent_id="a",
    )
    while fleet.bells.waiting:
        await (await fleet.start_next(worker))
    assert (await fleet.run(run.run_id))["result_text"] == "from a"
    rows = await fleet.database.fetch("SELECT agent_id, depth, status, source FROM runs ORDER BY depth")
    assert [tuple(row) for row in rows] == [
        ("a", 0, "succeeded", "api"),
        ("b", 1, "succeeded", "agent"),
        ("c", 2, "succeeded", "agent"),
    ]
    assert await _result_of(fleet, run.run_id) == ("completed", "from b")
    await check_any_time(fleet.database)


async def test_agents_that_are_asked_in_one_step_work_concurrently(fleet: Harness):
    run = await _begin(fleet, {"tool": [ask("b", {"say": "1"}), ask("c", {"say": "2"})]}, {"say": "sum"})
    assert (await fleet.run(run.run_id))["result_text"] == "sum"
    assert [await _result_of(fleet, run.run_id, at) for at in (0, 1)] == [("completed", "1"), ("completed", "2")]


@pytest.mark.parametrize(
    ("items", "says"),
    [
        ([{"tool": ask("a")}], "you cannot ask yourself"),
        ([{"tool": ask("nobody")}], "There is no agent 'nobody'"),
        ([{"tool": ask("b", {"tool": ask("c", {"tool": ask("d", {"say": "x"})})})}], "at most 3 agents"),
    ],
)
async def test_the_model_gets_the_reason_why_an_agent_cannot_be_asked(
    fleet: Harness, items: list[dict[str, Any]], says: str
):
    run = await _begin(fleet, *items, {"say": "done"})
    assert (await fleet.run(run.run_id))["status"] == "succeeded"
    texts = await fleet.database.fetch("SELECT result::text AS said FROM tool_calls WHERE status = 'failed'")
    assert any(says in row["said"] for row in texts)


async def test_a_failed_agent_is_an_answer(fleet: Harness):
    run = await _begin(fleet, {"tool": ask("b", {"error": {"message": "No idea"}})}, {"say": "then without"})
    assert (await fleet.run(run.run_id))["result_text"] == "then without"
    assert await _result_of(fleet, run.run_id) == ("failed", "b did not answer; its run failed: No idea.")


@proves("suspend.approval")
async def test_a_call_that_needs_permission_runs_once_it_is_given(fleet: Harness):
    save = {"name": "memory_save", "input": {"content": "Permitted"}}
    run = await _begin(fleet, {"tool": save}, {"say": "saved"}, agent_id="careful")
    assert await fleet.status(run.run_id) == "waiting"
    assert await fleet.database.fetchval("SELECT count(*) FROM memories") == 0
    wait = await fleet.database.fetchrow("SELECT kind, request FROM run_waits")
    assert wait is not None
    assert (wait["kind"], wait["request"]["tool_name"], wait["request"]["params"]) == (
        "approval",
        "memory_save",
        {"content": "Permitted"},
    )
    with pytest.raises(InvalidInput, match="say true or false"):
        await fleet.waiting.answer(fleet.tenant_id, run.run_id, None, Answer(text="yes"))
    await fleet.waiting.answer(fleet.tenant_id, run.run_id, None, Answer(approve=True))
    await fleet.settle(*fleet.workers)
    assert (await fleet.run(run.run_id))["result_text"] == "saved"
    assert await fleet.database.fetchval("SELECT content FROM memories") == "Permitted"


async def test_a_call_that_is_not_permitted_does_not_run_and_the_model_gets_the_reason(fleet: Harness):
    save = {"name": "memory_save", "input": {"content": "Never"}}
    run = await _begin(fleet, {"tool": save}, {"say": "then not"}, agent_id="careful")
    await fleet.waiting.answer(fleet.tenant_id, run.run_id, None, Answer(approve=False, text="Too private"))
    await fleet.settle(*fleet.workers)
    assert (await fleet.run(run.run_id))["result_text"] == "then not"
    assert await _result_of(fleet, run.run_id) == ("failed", "A person did not permit this call: Too private")
    assert await fleet.database.fetchval("SELECT count(*) FROM memories") == 0


@proves("suspend.approval")
async def test_a_permitted_call_is_not_run_again_after_its_worker_died(fleet: Harness):
    """A permission is for one call. After a crash its effect is unknown, and the model gets a result that states it."""
    forget = {"name": "unknown_tool", "input": {}}
    await fleet.add_agent(
        "wary",
        {
            "name": "wary",
            "engine": "scripted",
            "permissions": {"approvals": [{"tool": "unknown_*", "decision": "ask"}]},
        },
    )
    run = await _begin(fleet, {"tool": forget}, {"say": "done"}, agent_id="wary")
    await fleet.waiting.answer(fleet.tenant_id, run.run_id, None, Answer(approve=True))
    await fleet.settle(await _worker_after_one_that_died_in_the_call(fleet))
    assert (await fleet.run(run.run_id))["result_text"] == "done"
    status, said = await _result_of(fleet, run.run_id)
    assert status == "interrupted"
    assert "interrupted before it ended" in said


@pytest.mark.parametrize(
    ("call", "answer", "said"),
    [
        (_ASK, Answer(text="tea"), "tea"),
        (ask("b", {"say": "from b"}), None, "from b"),
        ({"name": "wait_until", "input": {"seconds": 3600}}, None, "It is "),
    ],
)
@proves("suspend.approval")
async def test_a_permitted_call_may_itself_wait(fleet: Harness, call: dict[str, Any], answer: Answer | None, said: str):
    asks = {"approvals": [{"tool": "*", "decision": "ask"}]}
    grants = {"user": {}, "agents": {}}
    await fleet.add_agent("timid", {"name": "timid", "engine": "scripted", "capabilities": grants, "permissions": asks})
    run = await _begin(fleet, {"tool": call}, {"say": "done"}, agent_id="timid")
    await fleet.waiting.answer(fleet.tenant_id, run.run_id, None, Answer(approve=True))
    await fleet.settle(*fleet.workers)
    if answer is not None:
        await fleet.waiting.answer(fleet.tenant_id, run.run_id, None, answer)
    await _pass_time(fleet)
    await fleet.settle(*fleet.workers)
    row = await fleet.run(run.run_id)
    assert (row["status"], row["result_text"], row["losses"]) == ("succeeded", "done", 0)
    assert (
        await fleet.database.fetchval("SELECT count(*) FROM run_waits WHERE run_id = :run_id", run_id=run.run_id) == 2
    )
    assert (await _result_of(fleet, run.run_id))[1].startswith(said)
    await check_any_time(fleet.database)


async def test_a_permitted_idempotent_call_of_a_dead_worker_needs_permission_again(
    fleet: Harness,
):
    again = {"name": "memory_list", "input": {}}
    run = await _begin(fleet, {"tool": again}, {"say": "listed"}, agent_id="careful")
    await fleet.waiting.answer(fleet.tenant_id, run.run_id, None, Answer(approve=True))
    other = await _worker_after_one_that_died_in_the_call(fleet)
    await fleet.settle(other)
    row = await fleet.run(run.run_id)
    assert (row["status"], row["losses"]) == ("waiting", 1)
    await fleet.waiting.answer(fleet.tenant_id, run.run_id, None, Answer(approve=True))
    await fleet.settle(other)
    assert (await fleet.run(run.run_id))["result_text"] == "listed"


async def test_a_call_with_an_invalid_wait_request_costs_its_run_one_attempt(fleet: Harness):
    run = await fleet.submit(plan(["odd:weather"]))
    await fleet.settle(fleet.worker())
    row = await fleet.run(run.run_id)
    assert (row["status"], row["attempt"], row["losses"], row["error_kind"]) == ("succeeded", 2, 0, None)
    assert (await _result_of(fleet, run.run_id))[0] == "interrupted"
    await check_any_time(fleet.database)


@pytest.mark.parametrize(
    "harm",
    [
        # A wait that cannot be read, and one that cannot be ended.
        "UPDATE run_waits SET request = '{}' WHERE run_id = :run_id",
        "UPDATE runs SET depth = 2147483647 WHERE id = :run_id",
    ],
)
async def test_a_wait_that_cannot_be_ended_blocks_no_other(fleet: Harness, harm: str):
    late = {"name": "ask_user", "input": _ASK["input"] | {"expires_in_s": 9, "escalate_to": "b"}}
    broken = await _begin(fleet, {"tool": late}, {"say": "never"})
    run = await _begin(fleet, {"tool": late}, {"say": "settled"}, agent_id="c")
    child = await _begin(fleet, {"tool": ask("b", {"tool": _ASK})}, {"say": "heard"})
    await fleet.database.execute(
        "UPDATE runs SET status = 'succeeded', result_text = 'b says', finished_at = now()"
        " WHERE parent_run_id = :parent_run_id",
        parent_run_id=child.run_id,
    )
    await fleet.database.execute(harm, run_id=broken.run_id)
    await fleet.database.execute(
        "UPDATE run_waits SET due_at = now() - interval '1 hour' WHERE run_id = :run_id", run_id=broken.run_id
    )
    await _pass_time(fleet)
    await fleet.settle(*fleet.workers)
    assert await fleet.status(broken.run_id) == "waiting"
    assert (await fleet.run(run.run_id))["result_text"] == "settled"
    assert (await fleet.run(child.run_id))["result_text"] == "heard"


@pytest.mark.parametrize("grants", [{}, {"agents": {"tools": ["list_agents"]}}])
async def test_an_agent_that_may_ask_no_agents_cannot_escalate_to_one(fleet: Harness, grants: dict[str, Any]):
    await fleet.add_agent("alone", {"name": "alone", "engine": "scripted", "capabilities": {"user": {}} | grants})
    question = {"name": "ask_user", "input": _ASK["input"] | {"expires_in_s": 9, "escalate_to": "b"}}
    run = await _begin(fleet, {"tool": question}, {"say": "done"}, agent_id="alone")
    assert await _result_of(fleet, run.run_id) == (
        "failed",
        "escalate_to: you may not ask other agents. Leave it out.",
    )


async def test_an_escalation_is_bounded_by_the_depth_of_agents(fleet: Harness):
    question = {"name": "ask_user", "input": _ASK["input"] | {"expires_in_s": 9, "escalate_to": "d"}}
    run = await _begin(fleet, {"tool": ask("b", {"tool": ask("c", {"tool": question}, {"say": "c"})})}, {"say": "a"})
    said = await fleet.database.fetchval("SELECT error FROM tool_calls WHERE tool_name = 'ask_user'")
    assert "at most 3 agents" in said
    # Nor if the question was asked under another rule.
    run = await _begin(fleet, {"tool": question}, {"say": "then not"})
    await fleet.database.execute("UPDATE runs SET depth = 2 WHERE id = :run_id", run_id=run.run_id)
    await _pass_time(fleet)
    await fleet.settle(*fleet.workers)
    assert await _result_of(fleet, run.run_id) == ("failed", "The person did not answer in time.")


async def test_a_crash_after_deleting_a_thread_leaves_the_end_of_its_runs_to_the_reconciler(fleet: Harness):
    run = await _begin(fleet, {"tool": ask("b", {"tool": _ASK})}, {"say": "never"})
    behind = await fleet.submit(script({"say": "never"}), run.thread_id)
    async with fleet.database.transaction() as transaction:
        canceled = await delete_thread(transaction, fleet.tenant_id, run.thread_id)
    assert [(each.doorbell.run_id, each.waiting, each.ended) for each in canceled] == [
        (run.run_id, True, False),
        (behind.run_id, False, True),
    ]
    await fleet.reconciler.reconcile()
    await fleet.settle(*fleet.workers)
    statuses = await fleet.database.fetch("SELECT DISTINCT status FROM runs")
    assert [row["status"] for row in statuses] == ["canceled"]
    await check_any_time(fleet.database)


@proves("suspend.cancel")
async def test_canceling_a_waiting_run_ends_it_and_the_runs_that_it_waited_for(fleet: Harness):
    run = await _begin(fleet, {"tool": ask("b", {"tool": _ASK}, {"say": "b"})}, {"say": "a"})
    (child,) = await fleet.database.fetch(
        "SELECT id FROM runs WHERE parent_run_id = :parent_run_id", parent_run_id=run.run_id
    )
    assert await fleet.status(child["id"]) == "waiting"
    await fleet.canceller.cancel(fleet.tenant_id, run.run_id)
    await fleet.settle(*fleet.workers)
    for run_id in (run.run_id, child["id"]):
        row = await fleet.run(run_id)
        assert (row["status"], row["stop_reason"]) == ("canceled", "aborted")
    assert await fleet.database.fetchval("SELECT count(*) FROM run_waits WHERE status = 'open'") == 0
    assert await fleet.database.fetchval("SELECT count(*) FROM tool_calls WHERE status = 'deferred'") == 0
    await check_any_time(fleet.database)


async def test_a_canceled_child_answers_its_parent(fleet: Harness):
    run = await _begin(fleet, {"tool": ask("b", {"tool": _ASK})}, {"say": "without b"})
    (child,) = await fleet.database.fetch(
        "SELECT id FROM runs WHERE parent_run_id = :parent_run_id", parent_run_id=run.run_id
    )
    await fleet.canceller.cancel(fleet.tenant_id, child["id"])
    await fleet.settle(*fleet.workers)
    assert (await fleet.run(run.run_id))["result_text"] == "without b"
    assert (await _result_of(fleet, run.run_id))[1].startswith("b did not answer; its run canceled")


@proves("suspend.cancel")
async def test_an_interrupting_message_ends_a_waiting_run(fleet: Harness):
    run = await _begin(fleet, {"tool": _ASK}, {"say": "never"})
    next_run = await fleet.submit(script({"say": "instead"}), run.thread_id, on_busy="interrupt")
    await fleet.settle(*fleet.workers)
    assert await fleet.status(run.run_id) == "canceled"
    assert (await fleet.run(next_run.run_id))["result_text"] == "instead"


async def test_a_crash_between_a_cancel_request_and_its_application_leaves_the_run_to_the_reconciler(fleet: Harness):
    run = await _begin(fleet, {"tool": _ASK}, {"say": "never"})
    await fleet.database.execute("UPDATE runs SET cancel_requested_at = now() WHERE id = :run_id", run_id=run.run_id)
    await fleet.reconciler.reconcile()
    await fleet.settle(*fleet.workers)
    assert await fleet.status(run.run_id) == "canceled"


@proves("runs.moved")
async def test_a_waiting_run_that_a_person_fails_ends_with_the_reason_and_answers_its_parent(fleet: Harness):
    run = await _begin(fleet, {"tool": ask("b", {"tool": _ASK})}, {"say": "heard"})
    (child,) = await fleet.database.fetch(
        "SELECT id, status FROM runs WHERE parent_run_id = :run_id", run_id=run.run_id
    )
    assert child["status"] == "waiting"
    locks = ThreadLocks(fleet.redis, ttl_s=fleet.settings.runs.lease_ttl_s)
    shown = await Mover(fleet.work, locks, fleet.waiting).fail(fleet.tenant_id, child["id"], "the person has left")
    assert shown.status == "waiting"
    await fleet.settle(*fleet.workers)
    ended = await fleet.run(child["id"])
    assert (ended["status"], ended["error_kind"]) == ("failed", "terminated")
    assert "the person has left" in ended["error_message"]
    assert (await fleet.run(run.run_id))["result_text"] == "heard"


async def test_the_reconciler_resolves_a_parents_wait_for_an_ended_child(fleet: Harness):
    run = await _begin(fleet, {"tool": ask("b", {"tool": _ASK})}, {"say": "heard"})
    await fleet.database.execute(
        "UPDATE runs SET status = 'succeeded', result_text = 'b says', finished_at = now()"
        " WHERE parent_run_id = :parent_run_id",
        parent_run_id=run.run_id,
    )
    await fleet.reconciler.reconcile()
    await fleet.settle(*fleet.workers)
    assert (await fleet.run(run.run_id))["result_text"] == "heard"
    assert await _result_of(fleet, run.run_id) == ("completed", "b says")


@pytest.mark.parametrize(("statement", "fault"), each_once(["suspend", "resolve", "finish"], get_args(Fault)))
@proves("suspend.once", "suspend.child")
async def test_a_delegation_survives_a_fault_at_each_of_its_writes(fleet: Harness, statement: str, fault: Fault):
    worker, other = fleet.worker(), fleet.worker()
    worker.faults.plan(fault, statement, nth=1)
    run = await fleet.submit(script({"tool": ask("b", {"say": "from b"})}, {"say": "from a"}), agent_id="a")
    await fleet.settle(worker)
    if worker.faults.dead:
        await worker.crash()
    for _ in range(3):
        await fleet.recover()
        await fleet.age_doorbells()
        await fleet.reconciler.reconcile()
        await fleet.settle(other)
        await check_any_time(fleet.database)
    assert (await fleet.run(run.run_id))["result_text"] == "from a"
    assert await _result_of(fleet, run.run_id) == ("completed", "from b")
    assert await fleet.database.fetchval("SELECT count(*) FROM runs") == 2


async def _worker_after_one_that_died_in_the_call(fleet: Harness) -> Worker:
    """Let a worker start the permitted call and die before it is committed; return the next worker."""
    worker, other = fleet.worker(), fleet.worker()
    worker.faults.plan("crash_before", "commit_step", nth=1)
    await fleet.settle(worker)
    await worker.crash()
    await fleet.recover()
    return other


async def _pass_time(fleet: Harness) -> None:
    """Let the deadlines of all waits pass."""
    await fleet.database.execute("UPDATE run_waits SET due_at = now() - interval '1 second' WHERE due_at IS NOT NULL")
    await fleet.reconciler.reconcile()


async def _begin_escalation(fleet: Harness, *, hold: str = "") -> tuple[Accepted, FaultInjector, Waiting]:
    """Let the deadline of a question pass, and return a process that is blocked in front of a statement."""
    question = {"name": "ask_user", "input": _ASK["input"] | {"expires_in_s": 9, "escalate_to": "planned"}}
    run = await _begin(fleet, {"tool": question}, {"say": "settled"})
    await fleet.database.execute("UPDATE run_waits SET due_at = now()")
    faults = FaultInjector()
    faults.hold(hold)
    database = FaultInjectingDatabase(fleet.database, faults)
    return run, faults, Waiting(_work(fleet, database))


async def _resume_approved_call(fleet: Harness, worker: Worker) -> Accepted:
    """Block a worker in front of the commit that an approved call is about to begin."""
    save = {"name": "memory_save", "input": {"content": "The sky is blue."}}
    run = await _begin(fleet, {"tool": save}, {"say": "Saved."}, agent_id="careful")
    await fleet.waiting.answer(fleet.tenant_id, run.run_id, None, Answer(approve=True))
    worker.faults.hold("commit_calls")
    return run


@proves("keep.self-fence")
async def test_an_approved_call_does_not_begin_after_its_worker_was_stopped_for_a_lease(fleet: Harness):
    clock = ManualClock()
    fleet.worker()
    worker = fleet.worker(clock=clock)
    run = await _resume_approved_call(fleet, worker)
    slot = await fleet.start_next(worker)
    await worker.faults.reached()
    clock.advance(fleet.settings.runs.lease_ttl_s)
    worker.faults.step()
    await slot
    assert "seal_call" not in worker.faults.log
    assert await fleet.status(run.run_id) == "running"


@proves("keep.taken")
async def test_a_call_does_not_begin_if_the_run_was_taken_since_its_worker_lost_its_session(fleet: Harness):
    fleet.worker()
    worker = fleet.worker()
    run = await _resume_approved_call(fleet, worker)
    slot = await fleet.start_next(worker)
    await worker.faults.reached()
    worker.keeper.doubt()
    worker.faults.hold("is_held")
    worker.faults.step()
    await worker.faults.reached()
    await fleet.recover()
    worker.faults.step()
    await slot
    assert "seal_call" not in worker.faults.log
    assert (await fleet.run(run.run_id))["attempt"] == 3


@proves("keep.taken")
async def test_a_call_begins_if_the_run_is_still_held_by_a_worker_that_lost_its_session(fleet: Harness):
    fleet.worker()
    worker = fleet.worker()
    run = await _resume_approved_call(fleet, worker)
    slot = await fleet.start_next(worker)
    await worker.faults.reached()
    worker.keeper.doubt()
    worker.faults.step()
    await slot
    assert await fleet.status(run.run_id) == "succeeded"
    assert worker.faults.log.count("is_held") == 1


def _dying(fleet: Harness, fault: Fault, statement: str, nth: int = 1) -> tuple[Canceller, Waiting]:
    """Return a process that dies at a statement."""
    faults = FaultInjector()
    faults.plan(fault, statement, nth=nth)
    database = FaultInjectingDatabase(fleet.database, faults)
    work = _work(fleet, database)
    return Canceller(work), Waiting(work)


def _work(fleet: Harness, database: FaultInjectingDatabase) -> Work:
    notifier = CancelApplier(Work(database, fleet.bells), ControlChannel(fleet.redis), fleet.publisher)
    return Work(database, fleet.bells, notifier)


async def _child_of(fleet: Harness, run_id: str) -> str:
    return await fleet.database.fetchval("SELECT id FROM runs WHERE parent_run_id = :run_id", run_id=run_id)


@pytest.mark.parametrize(("statement", "nth"), [("request", 1), ("request", 2), ("release", 1)])
@proves("suspend.cancel")
async def test_the_asked_agents_of_a_canceled_run_stop_wherever_the_canceling_process_dies(
    fleet: Harness, statement: str, nth: int
):
    # `c` waits for a person without a deadline.
    run = await _begin(fleet, {"tool": ask("b", {"tool": ask("c", {"tool": _ASK})})}, {"say": "never"})
    canceller, _ = _dying(fleet, "crash_after", statement, nth)
    with pytest.raises(Crashed):
        await canceller.cancel(fleet.tenant_id, run.run_id)
    for _ in range(3):
        await fleet.reconciler.reconcile()
        await fleet.age_doorbells()
        await fleet.settle(*fleet.workers)
    assert await fleet.database.fetchval("SELECT array_agg(DISTINCT status) FROM runs") == ["canceled"]
    assert await fleet.database.fetchval("SELECT count(*) FROM run_waits WHERE status = 'open'") == 0
    await check_any_time(fleet.database)


@proves("suspend.expiry")
async def test_an_agent_that_does_not_answer_in_time_is_stopped_although_the_process_dies(fleet: Harness):
    call = ask("b", {"tool": _ASK}, {"say": "too late"})
    call["input"]["timeout_s"] = 60
    run = await _begin(fleet, {"tool": call}, {"say": "without b"})
    await fleet.database.execute("UPDATE run_waits SET due_at = now() WHERE due_at IS NOT NULL")
    _, waiting = _dying(fleet, "crash_after", "resolve")
    with pytest.raises(Crashed):
        await waiting.sweep()
    await fleet.reconciler.reconcile()
    await fleet.age_doorbells()
    await fleet.reconciler.reconcile()
    await fleet.settle(*fleet.workers)
    assert (await fleet.run(run.run_id))["result_text"] == "without b"
    assert await fleet.status(await _child_of(fleet, run.run_id)) == "canceled"


async def test_an_agent_that_is_asked_in_a_persons_place_stops_although_the_answering_process_dies(fleet: Harness):
    asked = {"question": script({"tool": _ASK}), "expires_in_s": 9, "escalate_to": "planned"}
    run = await _begin(fleet, {"tool": {"name": "ask_user", "input": asked}}, {"say": "settled"})
    await _pass_time(fleet)
    _, waiting = _dying(fleet, "crash_after", "resolve")
    with pytest.raises(Crashed):
        await waiting.answer(fleet.tenant_id, run.run_id, None, Answer(text="coffee"))
    assert await fleet.status(await _child_of(fleet, run.run_id)) == "canceled"
