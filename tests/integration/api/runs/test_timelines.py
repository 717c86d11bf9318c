"""A run's timeline: attempts, steps with calls, waits, effects, deliveries and child runs, bounded in size."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from dirty_equals import IsPartialDict

from nova_workers.client.client import NovaClient
from nova_workers.contracts.content import text_block
from nova_workers.contracts.engine import ToolCall
from nova_workers.contracts.http.overview.timeline import CUT_CHARS, MAX_ENTRIES, RunTimeline
from nova_workers.contracts.runs import PlannedEffect, TurnFacts
from nova_workers.contracts.usage import TokenUsage
from nova_workers.contracts.waits import AskAgent, AskUser
from nova_workers.domain.runs.sql.leases import recover_expired
from nova_workers.domain.waits.sql.suspend import NewWait, suspend_run
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import ManualWorker, Turn


def _call(name: str, at: int, result: str = "done", **params: Any) -> ToolCall:
    now = datetime.now(UTC)
    return ToolCall(
        id=f"call_{at}",
        tool_name=name,
        params=params,
        step=at,
        sequence=at,
        status="completed",
        result=(text_block(result), {"type": "image", "source": {}}),
        started_at=now,
        completed_at=now,
    )


async def _timeline(api: Api, run_id: str, **params: Any) -> RunTimeline:
    answer = await api.http.get(f"/v1/runs/{run_id}/timeline", params=params)
    assert answer.status_code == 200, answer.text
    return RunTimeline.model_validate_json(answer.content)


async def _suspend(turn: Turn, *waits: NewWait) -> None:
    async with turn.worker.database.connection() as connection:
        await suspend_run(connection, turn.claim, waits, TokenUsage(), TurnFacts("unified", "sandbox", {}))


async def test_a_queued_run_has_an_empty_timeline(api: Api) -> None:
    run_id = await api.run(await api.thread())
    timeline = await _timeline(api, run_id)
    assert (timeline.status, timeline.attempts, timeline.steps, timeline.children) == ("queued", [], [], [])
    assert (timeline.turn_id, timeline.usage, timeline.cut) == (None, None, [])


async def test_a_run_shows_its_steps_calls_usage_and_messages_that_joined(api: Api, worker: ManualWorker) -> None:
    thread_id = await api.thread()
    run_id = await api.run(thread_id)
    turn = await worker.claim(thread_id)
    steering = await api.run(thread_id, "faster", on_busy="steer")
    await turn.commit("Looking.", _call("Read", 0, path="a.txt"))
    turn.seq += 1  # the message that joined
    await turn.finish("Found it.", effects=(PlannedEffect("embeddings", "searchable"),))
    timeline = await _timeline(api, run_id)
    assert (timeline.status, timeline.step_count, timeline.call_count) == ("succeeded", 2, 1)
    first, last = timeline.steps
    assert (first.index, first.attempt, first.text.text) == (0, 1, "Looking.")
    assert (last.index, last.text.text, last.calls) == (1, "Found it.", [])
    (call,) = first.calls
    assert (call.tool_name, call.arguments.text, call.status) == ("Read", '{"path": "a.txt"}', "completed")
    assert call.result is not None
    assert (call.result.text, call.result.chars, call.other_blocks) == ("done", 4, 1)
    assert [(message.run_id, message.text.text) for message in first.steered] == [(steering, "faster")]
    # The usage of each step, and of all.
    assert [(step.usage.input_tokens, step.usage.output_tokens) for step in timeline.steps if step.usage] == [
        (10, 5),
        (20, 7),
    ]
    assert timeline.usage is not None
    assert (timeline.usage.input_tokens, timeline.usage.output_tokens) == (30, 12)
    # Each step begins where the one before ended; the first at the claim.
    (attempt,) = timeline.attempts
    assert (attempt.attempt, attempt.worker_id, attempt.ended) == (1, "wkr_test", "succeeded")
    assert first.started_at == attempt.started_at == timeline.started_at
    assert first.completed_at is not None
    assert last.started_at == first.completed_at <= last.responded_at
    assert attempt.ended_at == timeline.finished_at
    assert [(effect.kind, effect.status) for effect in timeline.effects] == [("embeddings", "pending")]


async def test_each_attempt_shows_its_worker_and_how_it_ended(
    api: Api, worker: ManualWorker, database: Database
) -> None:
    thread_id = await api.thread()
    run_id = await api.run(thread_id)
    lost = await worker.claim(thread_id)
    await lost.commit("One.", _call("Read", 0))
    await database.execute("UPDATE runs SET lease_expires_at = now() - interval '1 s'")
    async with database.connection() as connection:
        assert len(await recover_expired(connection, limit=10)) == 1
    await (await worker.claim(thread_id)).requeue()
    running = await worker.claim(thread_id)
    during = await _timeline(api, run_id)
    assert [(attempt.attempt, attempt.worker_id, attempt.ended) for attempt in during.attempts] == [
        (1, "wkr_test", "lost"),
        (2, "wkr_test", "requeued"),
        (3, "wkr_test", None),
    ]
    assert during.losses == 1
    running.step, running.seq = lost.step, lost.seq
    await running.finish("Two.")
    after = await _timeline(api, run_id)
    assert [attempt.ended for attempt in after.attempts] == ["lost", "requeued", "succeeded"]
    times = [moment for each in after.attempts for moment in (each.started_at, each.ended_at) if moment is not None]
    assert len(times) == 6
    assert times == sorted(times)
    assert [step.attempt for step in after.steps] == [1, 3]
    # The second step began with the attempt that made it, not where the lost attempt left off.
    assert after.steps[1].started_at == after.attempts[2].started_at


async def test_waits_show_what_was_asked_and_by_whom_it_was_answered(api: Api, worker: ManualWorker) -> None:
    await api.http.post("/v1/agents", json={"id": "other", "name": "Other"})
    thread_id = await api.thread()
    run_id = await api.run(thread_id)
    turn = await worker.claim(thread_id)
    question = NewWait("call_q", AskUser(question="Tea or coffee?" + "?" * CUT_CHARS), due_in_s=3600)
    asked = NewWait("call_a", AskAgent(agent_id="other", message="Hello"), agent_id="other", message="Hello")
    await _suspend(turn, question, asked)
    waiting = await _timeline(api, run_id)
    assert [attempt.ended for attempt in waiting.attempts] == ["waiting"]
    assert [(wait.kind, wait.status, wait.asked_agent_id) for wait in waiting.waits] == [
        ("user", "open", None),
        ("agent", "open", "other"),
    ]
    assert waiting.waits[0].asked is not None
    assert (len(waiting.waits[0].asked.text), waiting.waits[0].asked.chars) == (CUT_CHARS, CUT_CHARS + 14)
    (child,) = waiting.children
    assert (child.id, child.agent_id, child.status) == (waiting.waits[1].child_run_id, "other", "queued")
    assert [(delivery.kind, delivery.target) for delivery in waiting.deliveries] == [("question", "user")]
    body = {"text": "tea", "by": "ann@example.com", "wait_id": waiting.waits[0].id}
    assert (await api.http.post(f"/v1/runs/{run_id}/answers", json=body)).status_code == 200
    answered = (await _timeline(api, run_id)).waits[0]
    assert (answered.status, answered.answer) == ("resolved", {"text": "tea", "by": "ann@example.com"})
    assert answered.resolved_at is not None


async def test_a_long_run_comes_in_pages_of_bounded_size(api: Api, worker: ManualWorker, database: Database) -> None:
    thread_id = await api.thread()
    run_id = await api.run(thread_id)
    turn = await worker.claim(thread_id)
    for at in range(7):
        await turn.commit("t" * 5_000, _call("Write", at, "r" * 5_000, content="c" * 5_000))
    await turn.finish("Done.")
    await database.execute(
        "INSERT INTO deliveries (id, tenant_id, kind, target, payload, run_id)"
        " SELECT 'dlv_' || lpad(n::text, 4, '0'), :tenant_id, 'notification', 'user', '{}', :run_id"
        "   FROM generate_series(1, :many::int) n",
        tenant_id=api.tenant.id,
        run_id=run_id,
        many=MAX_ENTRIES + 5,
    )
    async with NovaClient(api.url, api.tenant.key) as nova:
        steps: list[int] = []
        cursor = None
        while True:
            page = await nova.runs.timeline(run_id, limit=3, cursor=cursor)
            steps += [step.index for step in page.steps]
            for step in page.steps:
                assert len(step.text.text) <= CUT_CHARS
                for call in step.calls:
                    assert len(call.arguments.text) == CUT_CHARS < call.arguments.chars
                    assert call.result is not None
                    assert (len(call.result.text), call.result.chars) == (CUT_CHARS, 5_000)
            assert len(page.deliveries) == MAX_ENTRIES
            assert page.deliveries[-1].id == f"dlv_{MAX_ENTRIES + 5:04}", "the newest"
            assert page.cut == ["deliveries"]
            cursor = page.next_cursor
            if cursor is None:
                break
    assert steps == list(range(8))


@pytest.mark.parametrize("cursor", ["x", "bm90IGEgY3Vyc29y"])
async def test_a_cursor_of_elsewhere_is_refused(api: Api, cursor: str) -> None:
    run_id = await api.run(await api.thread())
    answer = await api.http.get(f"/v1/runs/{run_id}/timeline", params={"cursor": cursor})
    assert (answer.status_code, answer.json()) == (400, IsPartialDict(code="invalid_cursor"))
