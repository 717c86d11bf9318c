"""Rollouts: a version takes over an agent's threads in steps, and is stopped by its guardrails."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from dirty_equals import IsPartialDict, IsStr

from nova_workers.contracts.engine import EngineError
from nova_workers.contracts.http.rollouts import RolloutView
from nova_workers.domain.rollouts.rules.guardrails import LOOKS, MIN_BASELINE
from nova_workers.domain.rollouts.rules.service import RolloutSweep
from nova_workers.domain.rollouts.sql.observations import MOST_OF_THREAD, count_values
from nova_workers.ledger.database import Database
from nova_workers.ledger.work import Work
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import ManualWorker, make_tenant
from tests.requirements import proves

_EVERYWHERE = [{"percent": 100, "hours": 1}]
_BROKEN = EngineError("model_error", "The model answered nonsense.", retryable=False)
_VERSIONS = "SELECT array_agg(agent_version ORDER BY depth) FROM turns WHERE thread_id = :thread_id"
_CHANGES = "SELECT array_agg(change ORDER BY id) FROM changes WHERE tenant_id = :tenant_id AND subject = 'rollout'"
_DUE = "UPDATE rollouts SET step_ends_at = now() WHERE tenant_id = :tenant_id AND step_ends_at IS NOT NULL"
_AUDITED = """
SELECT array_agg(action ORDER BY id) FROM audit_events WHERE tenant_id = :tenant_id AND target_kind = 'rollout'
"""
_SAMPLES = """
INSERT INTO run_samples (run_id, tenant_id, agent_id, agent_version, thread_id, state, score, judged_at)
SELECT id, tenant_id, agent_id, agent_version, thread_id, 'done', CASE agent_version WHEN 1 THEN 1 ELSE 0.25 END, now()
  FROM runs WHERE tenant_id = :tenant_id
RETURNING run_id
"""
_WEBHOOK = """
INSERT INTO webhooks (id, tenant_id, url, secret, key_id, kinds)
VALUES ('whk_' || :tenant_id, :tenant_id, 'https://example.com', 'secret', 'k', '{rollout_changed}') RETURNING id
"""
_SENT = "SELECT jsonb_agg(payload ORDER BY id) FROM deliveries WHERE tenant_id = :tenant_id AND kind = :kind"


async def _post(api: Api, path: str, status: int, **body: Any) -> dict[str, Any]:
    answer = await api.http.post(f"/v1/agents/nova/{path}", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


async def _candidate(api: Api, **fields: Any) -> int:
    """Save a version that is not current."""
    saved = await _post(api, "versions", 201, **(fields or {"model": "candidate"}))
    return saved["version"]


async def _start(api: Api, **fields: Any) -> dict[str, Any]:
    return await _post(api, "rollout", 201, **{"version": await _candidate(api), "steps": _EVERYWHERE, **fields})


async def _report(api: Api) -> dict[str, Any]:
    answer = await api.http.get("/v1/agents/nova/rollout")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def _last_run(database: Database, api: Api) -> str:
    newest = "SELECT id FROM runs WHERE tenant_id = :tenant_id ORDER BY id DESC LIMIT 1"
    return await database.fetchval(newest, tenant_id=api.tenant.id)


async def _turn(api: Api, worker: ManualWorker, thread_id: str, *, fails_in: int | None = None) -> int:
    """Play a message of a thread, and return the version that executed it."""
    await api.run(thread_id)
    turn = await worker.claim(thread_id)
    fails = turn.claim.agent_version == fails_in
    await turn.finish(status="failed" if fails else "succeeded", error=_BROKEN if fails else None, publish=False)
    return turn.claim.agent_version


async def test_a_version_is_saved_without_becoming_the_current_one(api: Api) -> None:
    first = await _candidate(api)
    assert first == 2
    assert await _candidate(api) == 2
    assert await _candidate(api, model="another") == 3
    agent = (await api.http.get("/v1/agents/nova")).json()
    assert (agent["version"], agent["spec"]["model"]) == (1, None)
    changed = (await api.http.patch("/v1/agents/nova", json={"model": "current"})).json()
    assert changed["version"] == 4
    listed = (await api.http.get("/v1/agents/nova/versions")).json()["items"]
    assert [one["version"] for one in listed] == [4, 3, 2, 1]


@proves("rollouts.sticky")
async def test_a_thread_keeps_its_version_while_the_rollout_is_open_and_returns_after_it(
    api: Api, worker: ManualWorker, database: Database
) -> None:
    thread_id = await api.thread()
    assert await _turn(api, worker, thread_id) == 1
    rollout = await _start(api, steps=[{"percent": 0}, {"percent": 100}])
    assert await _turn(api, worker, thread_id) == 1
    assert (await _post(api, "rollout/advance", 200, step=0))["percent"] == 100
    # A repeated request advances nothing.
    await _post(api, "rollout/advance", 409, step=0)
    assert await _turn(api, worker, thread_id) == 2
    await database.execute("UPDATE rollouts SET share = 0 WHERE id = :id", id=rollout["id"])
    assert await _turn(api, worker, thread_id) == 2
    assert await _turn(api, worker, await api.thread()) == 1
    stopped = await _post(api, "rollout/stop", 200, reason="Too slow.")
    assert (stopped["status"], stopped["reason"], stopped["breach"]) == ("stopped", "Too slow.", None)
    assert await _turn(api, worker, thread_id) == 1
    assert await database.fetchval(_VERSIONS, thread_id=thread_id) == [1, 1, 2, 2, 1]
    turns = (await api.http.get(f"/v1/threads/{thread_id}/turns")).json()["items"]
    within = [turn["rollout_id"] for turn in sorted(turns, key=lambda turn: turn["depth"])]
    assert within == [None, *[rollout["id"]] * 3, None]
    await _post(api, "rollout/stop", 409)
    # An open page of the rollout is read again at each.
    assert await database.fetchval(_CHANGES, tenant_id=api.tenant.id) == ["running", "running", "stopped"]
    assert await database.fetchval(_AUDITED, tenant_id=api.tenant.id) == [
        "rollout.created",
        "rollout.updated",
        "rollout.stopped",
    ]


async def test_a_candidate_that_a_judge_finds_worse_is_stopped(
    api: Api, worker: ManualWorker, database: Database
) -> None:
    await _start(
        api,
        steps=[{"percent": 0}, {"percent": 100}],
        guardrails=[{"measure": "failure"}, {"measure": "judge", "tolerance": 0.1}],
    )
    for _ in range(MIN_BASELINE):
        await _turn(api, worker, await api.thread())
    await _post(api, "rollout/advance", 200, step=0)
    for _ in range(min(LOOKS)):
        await _turn(api, worker, await api.thread())
    sweep = RolloutSweep(Work(database))
    await sweep.sweep()
    assert (await _report(api))["rollout"]["status"] == "running"
    await database.fetch(_SAMPLES, tenant_id=api.tenant.id)
    await sweep.sweep()
    rollout = (await _report(api))["rollout"]
    assert rollout["breach"] == IsPartialDict(measure="judge", look=10, candidate_mean=0.25, baseline_mean=1)
    assert "judge's score of a run 0.25" in rollout["reason"]


async def test_a_share_takes_about_as_many_threads_and_a_filter_only_those_that_match(
    api: Api, worker: ManualWorker
) -> None:
    await _start(api, steps=[{"percent": 50}], metadata={"channel": "telegram"})
    versions: list[int] = []
    for _ in range(40):
        thread_id = await api.thread()
        await api.run(thread_id, metadata={"channel": "telegram"})
        turn = await worker.claim(thread_id)
        versions.append(turn.claim.agent_version)
    # Fewer than 5 or more than 35 of 40 have a probability below 10^-6.
    assert 5 <= versions.count(2) <= 35
    assert {await _turn(api, worker, await api.thread()) for _ in range(5)} == {1}


@proves("rollouts.stop")
async def test_a_candidate_that_fails_is_stopped_by_itself_and_people_learn_why(
    api: Api, worker: ManualWorker, database: Database
) -> None:
    await database.execute(_WEBHOOK, tenant_id=api.tenant.id)
    rollout = await _start(api, steps=[{"percent": 0}, {"percent": 100, "hours": 1}])
    sweep = RolloutSweep(Work(database))
    # As many of the current version as the first look needs.
    assert {await _turn(api, worker, await api.thread(), fails_in=2) for _ in range(MIN_BASELINE)} == {1}
    await _post(api, "rollout/advance", 200, step=0)
    for _ in range(min(LOOKS)):
        assert (await _report(api))["rollout"]["status"] == "running"
        assert await _turn(api, worker, await api.thread(), fails_in=2) == 2
        await asyncio.gather(sweep.sweep(), sweep.sweep())
    report = await _report(api)
    assert report["rollout"] == IsPartialDict(
        status="stopped", reason=IsStr(regex=r"Guardrail failure: failed runs 100\.0% in 10 of version 2, 0\.0% in .*")
    )
    assert report["rollout"]["breach"] == IsPartialDict(measure="failure", look=10, candidate_mean=1, baseline_mean=0)
    assert (report["candidate"]["runs"], report["candidate"]["failed"]) == (10, 10)
    assert report["baseline"]["failed"] == 0
    [failure, cost, *_] = report["guardrails"]
    breach = report["rollout"]["breach"]
    assert failure == {"measure": "failure", "tolerance": 0, "values": 10, "last": breach, "next_look": 25}
    assert cost == IsPartialDict(measure="cost", last=None, next_look=10)
    await api.http.post(f"/v1/runs/{await _last_run(database, api)}/feedback", json={"score": -1})
    history = (await api.http.get(f"/v1/agents/nova/rollouts/{rollout['id']}")).json()
    assert history["rollout"] == report["rollout"]
    for arm, figures in (("candidate", (10, 10, 1)), ("baseline", (10, 0, 0))):
        sums = [sum(one[arm][name] for one in history["periods"]) for name in ("runs", "failed", "rated")]
        assert tuple(sums) == figures
    assert (await api.http.get("/v1/agents/nova/rollouts/rol_unknown")).status_code == 404
    assert await _turn(api, worker, await api.thread(), fails_in=2) == 1
    sent = await database.fetchval(_SENT, tenant_id=api.tenant.id, kind="rollout_changed")
    assert [(one["status"], one["rollout_id"]) for one in sent] == [
        ("running", rollout["id"]),
        ("running", rollout["id"]),
        ("stopped", rollout["id"]),
    ]
    [inbox] = await database.fetchval(_SENT, tenant_id=api.tenant.id, kind="notification")
    assert inbox["text"].startswith("The rollout of version 2 of agent 'nova' was stopped. Guardrail failure:")
    assert (await database.fetchval(_AUDITED, tenant_id=api.tenant.id))[-1] == "rollout.breached"


async def test_a_good_candidate_advances_step_by_step_and_becomes_the_current_version(
    api: Api, worker: ManualWorker, database: Database
) -> None:
    steps = [{"percent": 0, "hours": 1}, {"percent": 50, "hours": 1, "approval": True}, {"percent": 100, "hours": 1}]
    await _start(api, steps=steps, min_runs=1)
    sweep = RolloutSweep(Work(database))

    async def after_its_time() -> tuple[str, int]:
        await database.execute(_DUE, tenant_id=api.tenant.id)
        await asyncio.gather(sweep.sweep(), sweep.sweep(), sweep.sweep())
        rollout = (await _report(api))["rollout"]
        return rollout["status"], rollout["step"]

    assert await after_its_time() == ("running", 0), "the candidate has no run yet"
    await database.execute("UPDATE rollouts SET share = 10000")
    assert await _turn(api, worker, await api.thread()) == 2
    # Two sweeps at once, but one step.
    assert await after_its_time() == ("running", 1)
    assert await after_its_time() == ("waiting", 1)
    assert await after_its_time() == ("waiting", 1)
    [asked] = await database.fetchval(_SENT, tenant_id=api.tenant.id, kind="notification")
    assert "waits at 50 % for your approval" in asked["text"]
    assert (await _post(api, "rollout/advance", 200, step=1))["step"] == 2
    assert await after_its_time() == ("promoted", 2)
    agent = (await api.http.get("/v1/agents/nova")).json()
    assert (agent["version"], agent["spec"]["model"]) == (2, "candidate")
    assert await _turn(api, worker, await api.thread()) == 2
    assert (await database.fetchval(_AUDITED, tenant_id=api.tenant.id))[-1] == "rollout.promoted"


async def test_a_sweep_that_dies_before_its_commit_is_repeated(api: Api, database: Database) -> None:
    await _start(api, steps=[{"percent": 0, "hours": 1}, {"percent": 10}], min_runs=0)
    await database.execute(_DUE, tenant_id=api.tenant.id)
    await database.execute("ALTER TABLE rollouts ADD CONSTRAINT no_step CHECK (step = 0) NOT VALID")
    await RolloutSweep(Work(database)).sweep()
    assert (await _report(api))["rollout"]["step"] == 0
    await database.execute("ALTER TABLE rollouts DROP CONSTRAINT no_step")
    await RolloutSweep(Work(database)).sweep()
    assert (await _report(api))["rollout"]["step"] == 1


async def test_while_a_rollout_is_open_the_current_version_stays(api: Api) -> None:
    await _start(api)
    refused = await api.http.patch("/v1/agents/nova", json={"model": "hasty"})
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert "Stop the rollout first" in refused.json()["detail"]
    assert (await api.http.post("/v1/agents/nova/rename", json={"to": "nova2"})).status_code == 409
    await _post(api, "rollout", 409, version=await _candidate(api, model="third"))
    assert (await api.http.patch("/v1/agents/nova", json={"model": None})).status_code == 200
    assert (await api.http.delete("/v1/agents/nova")).status_code == 204
    await api.http.post("/v1/agents", json={"id": "nova", "name": "Nova"})
    assert (await _report(api))["rollout"] == IsPartialDict(status="stopped", reason="The agent was deleted.")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"version": 1}, "is the current version"),
        ({"version": 2, "steps": [{"percent": 50}, {"percent": 10}]}, "not below"),
        ({"version": 2, "guardrails": [{"measure": "cost"}, {"measure": "cost"}]}, "at most once"),
        ({"version": 2, "guardrails": [{"measure": "failure", "tolerance": 0.1}]}, "no tolerance"),
    ],
)
async def test_a_rollout_that_cannot_be_is_refused(api: Api, body: dict[str, Any], message: str) -> None:
    await _candidate(api)
    answer = await api.http.post("/v1/agents/nova/rollout", json=body)
    assert answer.status_code == 422, answer.text
    assert message in answer.text
    assert (await api.http.get("/v1/agents/nova/rollout")).status_code == 404


async def test_a_candidate_needs_the_same_projects_as_the_current_version(api: Api, database: Database) -> None:
    version = await _candidate(api)
    for table, column in (("agents", "id"), ("agent_versions", "agent_id")):
        await database.execute(
            f"UPDATE {table} SET spec = spec || jsonb_build_object('capabilities', :capabilities::jsonb)"
            f" WHERE tenant_id = :tenant_id AND {column} = 'nova' AND version = 1",
            tenant_id=api.tenant.id,
            capabilities={"project:shop": {}},
        )
    answer = await api.http.post("/v1/agents/nova/rollout", json={"version": version})
    assert answer.status_code == 422, answer.text
    assert "needs other projects" in answer.text


async def test_of_one_thread_a_bounded_number_of_runs_counts(
    api: Api, worker: ManualWorker, database: Database
) -> None:
    await _start(api, guardrails=[{"measure": "failure"}])
    thread_id = await api.thread()
    for _ in range(6):
        await _turn(api, worker, thread_id, fails_in=2)
    report = await _report(api)
    assert report["candidate"]["runs"] == 6
    rollout = RolloutView.model_validate(report["rollout"])
    async with database.connection() as connection:
        assert (await count_values(connection, api.tenant.id, rollout))["failure"] == MOST_OF_THREAD


async def test_another_tenant_sees_and_changes_nothing_of_a_rollout(
    api: Api, worker: ManualWorker, database: Database
) -> None:
    await _start(api)
    other = await make_tenant(database)
    async with api.client(other.key) as http:
        assert (await http.get("/v1/agents/nova/rollout")).status_code == 404
        assert (await http.get("/v1/agents/nova/rollouts")).json()["items"] == []
        assert (await http.post("/v1/agents/nova/rollout/stop", json={})).status_code == 409
        thread_id = (await http.post("/v1/threads", json={})).json()["id"]
        assert (await http.post(f"/v1/threads/{thread_id}/runs", json={"message": "hello"})).status_code == 202
        assert (await worker.claim(thread_id)).claim.agent_version == 1
    listed = (await api.http.get("/v1/agents/nova/rollouts")).json()["items"]
    assert [one["status"] for one in listed] == ["running"]
