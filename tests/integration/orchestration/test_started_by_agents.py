"""Orchestrations that agents start: once per call, within the agent's rights, with an end that comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nova_workers.contracts.runs import Accepted, Doorbell
from nova_workers.contracts.waits import Answer
from nova_workers.ledger.database import Row
from tests.requirements import proves
from tests.support.harness.trees import Forest, call, complete, script, spawn

_STARTER = "starter"


@pytest.fixture
async def lead(forest: Forest) -> Forest:
    """A fleet with an agent that may start orchestrations."""
    grants = {"orchestrations": {}, "agents": {}}
    await forest.harness.add_agent(_STARTER, {"name": "Lead", "engine": "scripted", "capabilities": grants})
    return forest


def _start(*items: dict[str, Any], wait: bool = True, **given: Any) -> dict[str, Any]:
    return call("start_orchestration", task=script(*items), wait=wait, **given)


async def _submit(forest: Forest, *items: dict[str, Any]) -> Accepted:
    accepted = await forest.harness.submit(script(*items), agent_id=_STARTER)
    await forest.settle()
    return accepted


async def _calls(forest: Forest, run_id: str) -> list[tuple[str, str]]:
    """Return status and text of the tool calls of a run."""
    rows = await forest.harness.database.fetch(
        "SELECT c.status, c.result FROM tool_calls c JOIN runs r ON r.turn_id = c.turn_id"
        " WHERE r.id = :run_id ORDER BY c.sequence",
        run_id=run_id,
    )
    return [(row["status"], (row["result"] or [{"text": ""}])[0]["text"]) for row in rows]


async def _trees(forest: Forest) -> list[Row]:
    return await forest.harness.database.fetch("SELECT * FROM orchestrations ORDER BY id")


@proves("orchestration.agents-start")
async def test_an_agent_waits_for_its_orchestration_and_gets_the_result(lead: Forest) -> None:
    run = await _submit(lead, _start(spawn(complete("It is in parse().")), complete("Found it.")), {"say": "done"})
    ((status, text),) = await _calls(lead, run.run_id)
    assert status == "completed"
    assert "is complete" in text
    assert "Found it." in text
    assert await lead.harness.status(run.run_id) == "succeeded"
    (tree,) = await _trees(lead)
    assert (tree["agent_id"], tree["source"], tree["source_run_id"]) == (_STARTER, "agent", run.run_id)


async def test_a_failed_orchestration_fails_the_call_with_its_error_and_partial_result(lead: Forest) -> None:
    used = {"say": "part", "usage": {"input_tokens": 800, "output_tokens": 100}, "tool": {"name": "look"}}
    run = await _submit(lead, _start(used, used, used, complete("no"), token_budget=1_000), {"say": "done"})
    ((status, text),) = await _calls(lead, run.run_id)
    assert status == "failed"
    assert "tokens" in text


async def test_the_end_of_an_orchestration_in_the_background_is_a_message_in_the_thread(lead: Forest) -> None:
    run = await _submit(lead, _start(complete("Found it."), wait=False), {"say": "started"})
    ((status, text),) = await _calls(lead, run.run_id)
    (tree,) = await _trees(lead)
    assert status == "completed"
    assert tree["id"] in text
    first, report = await lead.harness.database.fetch(
        "SELECT * FROM runs WHERE thread_id = :thread_id ORDER BY seq", thread_id=run.thread_id
    )
    assert first["id"] == run.run_id
    assert (report["source"], report["meta"]["orchestration_id"]) == ("agent", tree["id"])
    assert f"Orchestration {tree['id']}, which you started, is complete." in report["content"][0]["text"]
    assert "Found it." in report["content"][0]["text"]


@proves("orchestration.agents-start")
async def test_a_call_that_is_repeated_after_a_crash_finds_the_first_orchestration(lead: Forest) -> None:
    harness = lead.harness
    run = await harness.submit(script(_start(complete("once")), {"say": "done"}), agent_id=_STARTER)
    worker = harness.worker()
    worker.faults.plan("crash_before", "suspend", nth=1)
    await harness.settle(worker)
    await worker.crash()
    harness.workers.remove(worker)
    assert len(await _trees(lead)) == 1
    # What the first call chose is not available any more.
    await harness.database.execute(
        "INSERT INTO orchestration_configs (tenant_id, version, text, models_text, created_by)"
        " VALUES (:tenant_id, 1, 'defaults: {master_model: nowhere/none}', '', 'person')",
        tenant_id=lead.tenant_id,
    )
    await harness.age_doorbells()
    await harness.recover()
    await lead.settle()
    assert len(await _trees(lead)) == 1
    ((status, text),) = await _calls(lead, run.run_id)
    assert status == "completed"
    assert "once" in text


async def test_an_end_before_the_run_waits_is_found_when_it_begins_to_wait(lead: Forest) -> None:
    harness = lead.harness
    run = await harness.submit(script(_start(complete("quick")), {"say": "done"}), agent_id=_STARTER)
    worker = harness.worker()
    worker.faults.plan("crash_before", "suspend", nth=1)
    await harness.settle(worker)
    await worker.crash()
    harness.workers.remove(worker)
    (queued,) = await harness.database.fetch("SELECT id, thread_id, queue FROM runs WHERE status = 'queued'")
    harness.bells.ring_runs([Doorbell(queued["id"], queued["thread_id"], queued["queue"])])
    await lead.settle()
    (tree,) = await _trees(lead)
    assert tree["finished_at"] is not None
    await harness.expire_leases()
    await harness.reconciler.reconcile()
    await lead.settle()
    ((status, text),) = await _calls(lead, run.run_id)
    assert (status, "quick" in text) == ("completed", True)


async def test_an_end_whose_process_died_before_it_ended_the_wait_is_found_by_the_sweep(lead: Forest) -> None:
    harness = lead.harness
    run = await _submit(lead, _start(spawn(call("ask_user", question="Go on?"))), {"say": "done"})
    assert [status for status, _ in await _calls(lead, run.run_id)] == ["deferred"]
    # What is left if the process dies between the cancellation of a master's run and the end of the waits on it.
    ended = await harness.database.execute(
        "UPDATE runs SET status = 'canceled', finished_at = now() WHERE id ="
        " (SELECT child_run_id FROM run_waits WHERE run_id = :run_id AND status = 'open')",
        run_id=run.run_id,
    )
    assert ended == "UPDATE 1"
    assert await harness.waiting.sweep() == 1
    await lead.settle()
    ((status, text),) = await _calls(lead, run.run_id)
    assert (status, "was killed" in text) == ("failed", True)
    assert await harness.status(run.run_id) == "succeeded"


async def test_canceling_the_waiting_run_ends_its_orchestration(lead: Forest) -> None:
    run = await _submit(lead, _start(spawn(call("ask_user", question="Go on?"))), {"say": "done"})
    assert await lead.harness.status(run.run_id) == "waiting"
    await lead.harness.canceller.cancel(lead.tenant_id, run.run_id)
    await lead.settle()
    (tree,) = await _trees(lead)
    states = await lead.harness.database.fetch("SELECT state FROM orchestration_agents WHERE state <> 'KILLED'")
    assert tree["finished_at"] is not None
    assert states == []


@proves("orchestration.agents-bounded")
async def test_agents_of_an_orchestration_cannot_start_another(lead: Forest) -> None:
    run = await _submit(lead, _start(spawn(_start(complete("x")), complete("none")), complete("done")), {"say": "ok"})
    assert await lead.harness.status(run.run_id) == "succeeded"
    (tree,) = await _trees(lead)
    rows = await lead.harness.database.fetch(
        "SELECT spec->'capabilities' AS granted FROM orchestration_agents WHERE orchestration_id = :id", id=tree["id"]
    )
    assert len(rows) == 2
    assert all("orchestrations" not in row["granted"] for row in rows)


@proves("orchestration.agents-bounded")
async def test_an_agent_that_another_one_asked_cannot_start_an_orchestration(lead: Forest) -> None:
    await lead.harness.add_agent("boss", {"name": "Boss", "engine": "scripted", "capabilities": {"agents": {}}})
    message = script(_start(complete("x")), {"say": "refused"})
    await lead.harness.submit(
        script(call("ask_agent", agent_id=_STARTER, message=message), {"say": "done"}), agent_id="boss"
    )
    await lead.settle()
    assert await _trees(lead) == []
    (row,) = await lead.harness.database.fetch(
        "SELECT status, result FROM tool_calls WHERE tool_name = 'start_orchestration'"
    )
    assert row["status"] == "failed"
    assert "Another agent gave you this work" in row["result"][0]["text"]


@proves("orchestration.agents-bounded")
async def test_what_an_agent_must_ask_for_its_orchestration_must_ask_for_too(lead: Forest, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("the code is 4711")
    spec = {
        "name": "Lead",
        "engine": "scripted",
        "trust": "controlled",
        "directories": [str(tmp_path)],
        "capabilities": {"orchestrations": {}},
        "permissions": {"approvals": [{"tool": "Read", "decision": "ask"}]},
    }
    await lead.harness.add_agent("asking", spec)
    read = call("Read", file_path=str(tmp_path / "secret.txt"))
    message = script(_start(read, spawn(complete("part")), complete("Read.")), {"say": "done"})
    run = await lead.harness.submit(message, agent_id="asking")
    await lead.settle()
    (master,) = await lead.harness.database.fetch("SELECT run_id FROM orchestration_agents WHERE role = 'MASTER'")
    assert await lead.harness.status(master["run_id"]) == "waiting"
    await lead.harness.waiting.answer(lead.tenant_id, master["run_id"], None, Answer(approve=True))
    await lead.settle()
    ((status, text),) = await _calls(lead, run.run_id)
    assert (status, "Read." in text) == ("completed", True)


async def test_the_working_directory_is_within_those_of_the_agent(lead: Forest) -> None:
    run = await _submit(lead, _start(complete("x"), cwd="/etc"), {"say": "refused"})
    assert await _trees(lead) == []
    ((status, text),) = await _calls(lead, run.run_id)
    assert status == "failed"
    assert "'/etc'" in text


async def test_an_agent_sees_waits_for_and_kills_only_what_it_started(lead: Forest) -> None:
    run = await _submit(
        lead,
        _start(spawn(call("ask_user", question="?")), wait=False),
        call("list_orchestrations", open=True),
        {"say": "ok"},
    )
    (tree,) = await _trees(lead)
    assert tree["id"] in (await _calls(lead, run.run_id))[1][1]
    other = await lead.start(complete("of a person"), agent_id=_STARTER)
    again = await lead.harness.submit(
        script(
            call("get_orchestration", orchestration_id=other.orchestration_id),
            call("kill_orchestration", orchestration_id=other.orchestration_id, reason="not mine"),
            call("get_orchestration", orchestration_id=tree["id"]),
            call("kill_orchestration", orchestration_id=tree["id"], reason="enough"),
            call("wait_for_orchestration", orchestration_id=tree["id"]),
            {"say": "ok"},
        ),
        agent_id=_STARTER,
    )
    await lead.settle()
    results = await _calls(lead, again.run_id)
    assert [status for status, _ in results] == ["failed", "failed", "completed", "completed", "completed"]
    assert "Ended 2 agents" in results[3][1]
    assert "KILLED" in results[4][1]
    assert (await lead.agents(other))[0].state == "COMPLETED"
