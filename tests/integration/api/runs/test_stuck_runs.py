"""A run that does not move: all its reasons, and what a person may do about it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from redis.asyncio import Redis

from nova_workers.base.keys import thread_lock
from nova_workers.contracts.http.reasons import RunReasons
from nova_workers.contracts.waits import AskUser
from nova_workers.domain.waits.sql.suspend import NewWait
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import ManualWorker
from tests.requirements import proves

_PAST = datetime.now(UTC) - timedelta(seconds=1)


async def _why(api: Api, run_id: str) -> list[str]:
    return [reason.kind for reason in (await _reasons(api, run_id)).reasons]


async def _reasons(api: Api, run_id: str) -> RunReasons:
    answer = await api.http.get(f"/v1/runs/{run_id}/reasons")
    assert answer.status_code == 200, answer.text
    return RunReasons.model_validate_json(answer.content)


async def _refusal(api: Api, path: str, body: dict[str, Any] | None = None) -> str:
    answer = await api.http.post(f"/v1/runs/{path}", json=body)
    assert answer.status_code == 409, answer.text
    assert answer.json()["code"] == "illegal_transition"
    return answer.json()["detail"]


async def _expire(database: Database, run_id: str) -> None:
    await database.execute("UPDATE runs SET lease_expires_at = :past WHERE id = :run_id", past=_PAST, run_id=run_id)


@proves("runs.why")
async def test_a_queued_run_has_every_reason_that_holds(api: Api, worker: ManualWorker) -> None:
    thread = await api.thread()
    first, second, third = [await api.run(thread) for _ in range(3)]
    assert await _why(api, first) == ["no_worker"]
    agent_id = (await worker.claim(thread)).claim.agent_id
    for pause in ({"scope": "tenant", "reason": "a move"}, {"scope": "agent", "agent_id": agent_id}):
        assert (await api.http.post("/v1/fleet/pause", json=pause)).status_code == 200
    reasons = (await _reasons(api, third)).reasons
    kinds = ["tenant_paused", "agent_paused", "thread_busy", "behind_in_thread", "no_worker"]
    assert [reason.kind for reason in reasons] == kinds
    assert all(reason.since is not None for reason in reasons)
    assert "a move" in reasons[0].text
    assert first in reasons[2].text
    assert second in reasons[3].text


@proves("runs.why")
async def test_a_run_that_executes_waits_or_has_ended_says_what_for(api: Api, worker: ManualWorker) -> None:
    thread = await api.thread()
    run_id = await api.run(thread)
    turn = await worker.claim(thread)
    assert await _why(api, run_id) == ["executes", "model"]
    other = await api.thread()
    calling = await api.run(other)
    await (await worker.claim(other)).open_call("lathe")
    called = (await _reasons(api, calling)).reasons
    assert [reason.kind for reason in called] == ["executes", "call"]
    assert "'lathe'" in called[1].text
    assert called[1].since is not None
    await turn.suspend("", NewWait("call_1", AskUser(question="Which one?")))
    (waits,) = (await _reasons(api, run_id)).reasons
    assert (waits.kind, waits.text) == ("waits", "It waits for a person's answer.")
    await api.http.post(f"/v1/runs/{run_id}/cancel")
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    assert await _why(api, await api.run(await api.thread(), start_at=later)) == ["scheduled"]
    await (await worker.claim(thread)).finish()
    assert await _why(api, run_id) == ["ended"]


@proves("runs.moved")
async def test_a_live_lease_is_touched_by_none_of_them(api: Api, worker: ManualWorker) -> None:
    thread = await api.thread()
    run_id = await api.run(thread)
    turn = await worker.claim(thread)
    for path, body in (("kick", None), ("requeue", None), ("fail", {"reason": "stuck"})):
        assert "under a live lease" in await _refusal(api, f"{run_id}/{path}", body)
    await turn.finish()
    for path, body in (("kick", None), ("requeue", None), ("fail", {"reason": "stuck"})):
        assert "it is succeeded" in await _refusal(api, f"{run_id}/{path}", body)


@proves("runs.moved")
async def test_a_run_of_a_lost_worker_is_taken_back(api: Api, worker: ManualWorker, database: Database) -> None:
    thread = await api.thread()
    run_id = await api.run(thread)
    await worker.claim(thread)
    await _expire(database, run_id)
    assert await _why(api, run_id) == ["lease_expired", "model"]
    answer = await api.http.post(f"/v1/runs/{run_id}/requeue")
    assert (answer.status_code, answer.json()["status"], answer.json()["losses"]) == (200, "queued", 1)
    assert "queued already" in await _refusal(api, f"{run_id}/requeue")
    assert (await worker.claim(thread)).claim.attempt == 2
    acts = await api.http.get("/v1/audit", params={"target_kind": "run", "target": run_id})
    assert [item["action"] for item in acts.json()["items"]] == ["run.requeued"]


@proves("runs.moved")
async def test_a_kick_removes_a_lock_that_no_run_needs_and_lets_a_held_run_try(
    api: Api, database: Database, redis: Redis
) -> None:
    thread = await api.thread()
    run_id = await api.run(thread)
    await redis.set(thread_lock(thread), "of nothing", px=60_000)
    await database.execute("UPDATE runs SET rang_at = now() - interval '1 hour' WHERE id = :run_id", run_id=run_id)
    assert (await api.http.post(f"/v1/runs/{run_id}/kick")).status_code == 200
    assert await redis.get(thread_lock(thread)) is None
    rang = "SELECT rang_at > now() - interval '1 minute' FROM runs WHERE id = :run_id"
    assert await database.fetchval(rang, run_id=run_id)
    await database.execute(
        "UPDATE runs SET hold = 'provider', held_since = now(), held_until = now() + interval '1 hour', "
        "rang_at = 'infinity', hold_detail = :detail WHERE id = :run_id",
        detail={"provider": "anthropic", "outage": "down", "message": "no answer"},
        run_id=run_id,
    )
    assert (await _why(api, run_id))[0] == "provider"
    assert (await api.http.post(f"/v1/runs/{run_id}/kick")).status_code == 200
    assert await database.fetchval("SELECT held_until <= now() FROM runs WHERE id = :run_id", run_id=run_id)


@proves("runs.moved")
async def test_only_a_run_that_had_begun_is_failed_and_with_a_reason(
    api: Api, worker: ManualWorker, database: Database
) -> None:
    thread = await api.thread()
    run_id = await api.run(thread)
    assert "no worker has begun it" in await _refusal(api, f"{run_id}/fail", {"reason": "stuck"})
    assert (await api.http.post(f"/v1/runs/{run_id}/fail", json={"reason": ""})).status_code == 422
    await worker.claim(thread)
    await _expire(database, run_id)
    answer = await api.http.post(f"/v1/runs/{run_id}/fail", json={"reason": "its tool hangs"})
    assert (answer.status_code, answer.json()["status"], answer.json()["error"]) == (200, "queued", None)
    assert "asked for already" in await _refusal(api, f"{run_id}/fail", {"reason": "again"})
    claim = (await worker.claim(thread)).claim
    assert (claim.cancel_reason, claim.failed_for) == ("cancel", "its tool hangs")
    acts = await api.http.get("/v1/audit", params={"target_kind": "run", "target": run_id})
    assert {item["action"] for item in acts.json()["items"]} == {"run.failed", "run.canceled"}
