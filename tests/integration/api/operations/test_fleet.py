"""The fleet view, pauses, probes and metrics."""

from typing import Any

import orjson
import pytest
from dirty_equals import IsFloat, IsPartialDict
from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.base.keys import worker_presence, workers_index
from nova_workers.domain.runs.sql.drains import is_drain_ordered
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api, Serve
from tests.integration.api.manual_worker import ManualWorker, Tenant, make_tenant
from tests.requirements import proves
from tests.support.waiting import until

# What it looks at or changes is of the whole fleet.
pytestmark = pytest.mark.usefixtures("own_api")


async def test_the_fleet_view_shows_queued_and_running_runs(api: Api, worker: ManualWorker) -> None:
    one, two = await api.thread(), await api.thread()
    await api.run(one)
    await worker.play(one)
    await api.run(one)
    await worker.claim(one)
    await api.run(two, queue="background")
    fleet = (await api.http.get("/v1/fleet")).json()
    assert fleet["runs"] == {"scheduled": 0, "queued": 1, "running": 1, "waiting": 0, "succeeded": 1}
    assert fleet["queues"] == [
        {"queue": "interactive", "queued": 0, "oldest_queued_age_s": None},
        {"queue": "background", "queued": 1, "oldest_queued_age_s": IsFloat(ge=0)},
    ]
    assert fleet["switches"] == []


async def test_the_top_has_what_runs_longest_and_what_the_last_minute_used(
    api: Api, worker: ManualWorker, database: Database
) -> None:
    first, second, ended = await api.thread(), await api.thread(), await api.thread()
    for thread in (first, second, ended):
        await api.run(thread)
    await worker.claim(first)
    await worker.claim(second)
    await worker.play(ended)
    narrow = await make_tenant(database, ("runs",), api.tenant.id)
    stranger = await make_tenant(database, ("runs",))
    async with api.client(narrow.key) as mine, api.client(stranger.key) as other:
        view = (await mine.get("/v1/fleet/top")).json()
        assert [run["thread_id"] for run in view["longest"]] == [first, second]
        assert view["longest"][0] == IsPartialDict(
            agent_id="nova", queue="interactive", attempt=1, elapsed_s=IsFloat(ge=0)
        )
        assert view["last_minute"] == IsPartialDict(ended=1, failed=0)
        assert view["last_minute"]["input_tokens"] > 0
        assert view["fleet"] == (await mine.get("/v1/fleet")).json()
        assert view["fleet"]["workers"] is None
        of_other = (await other.get("/v1/fleet/top")).json()
        assert (of_other["longest"], of_other["last_minute"]["ended"]) == ([], 0)
    assert len((await api.http.get("/v1/fleet/top")).json()["longest"]) == 2, "an operator sees all tenants"


async def test_queued_runs_are_counted_by_the_reason_why_they_wait(
    api: Api, worker: ManualWorker, other_tenant: Tenant, redis: Redis, database: Database
) -> None:
    narrow = await make_tenant(database, ("runs",), api.tenant.id)

    async def reasons() -> dict[tuple[str, str], int]:
        async with api.client(narrow.key) as mine:
            groups = (await mine.get("/v1/fleet/queued")).json()["groups"]
        assert all(group["oldest_age_s"] >= 0 for group in groups)
        return {(group["queue"], group["reason"]): group["runs"] for group in groups}

    async with api.client(other_tenant.key) as other:
        await other.post("/v1/runs", json={"message": "of another tenant"})
        assert await reasons() == {}
        assert len((await other.get("/v1/fleet/queued")).json()["groups"]) == 1
        assert len((await api.http.get("/v1/fleet/queued")).json()["groups"]) == 1, "an operator sees all tenants"
    busy, free = await api.thread(), await api.thread()
    await api.run(busy)
    await worker.claim(busy)
    await api.run(busy)
    for _ in range(3):
        await api.run(free, queue="background")
    assert await reasons() == {
        ("background", "behind_in_thread"): 2,
        ("background", "no_worker"): 1,
        ("interactive", "thread_busy"): 1,
    }
    record = {
        "id": "wkr_1", "host": "h", "pid": 7, "queues": ["background"], "slots": 8, "busy": 8, "draining": False,
        "seen_at": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    await redis.zadd(workers_index(), {"wkr_1": 1})
    await redis.set(worker_presence("wkr_1"), orjson.dumps(record))
    assert (await reasons())["background", "worker"] == 1
    await api.http.patch("/v1/agents/nova", json={"max_running": 1})
    assert (await reasons())["background", "agent_full"] == 1
    await api.http.post("/v1/fleet/pause", json={"scope": "agent", "agent_id": "nova"})
    assert await reasons() == {("background", "agent_paused"): 3, ("interactive", "agent_paused"): 1}


async def test_statuses_come_in_the_same_order_every_time(api: Api, database: Database) -> None:
    ended = ["succeeded", "merged", "failed", "canceled"]
    for status in ended:
        run_id = await api.run(await api.thread())
        await database.execute(
            "UPDATE runs SET status = :status, finished_at = now() WHERE id = :run_id", run_id=run_id, status=status
        )
    fleet = (await api.http.get("/v1/fleet")).json()
    assert list(fleet["runs"]) == ["scheduled", "queued", "running", "waiting", *sorted(ended)]


async def test_an_operator_sees_all_tenants_and_the_workers_others_their_own(
    api: Api, other_tenant: Tenant, database: Database, redis: Redis
) -> None:
    await redis.zadd(workers_index(), {"wkr_1": 1, "wkr_gone": 0, "wkr_garbled": 2})
    await redis.zadd(workers_index(), {b"\xff": 3})
    await redis.set(worker_presence("wkr_garbled"), b"no JSON")
    record = {
        "id": "wkr_1", "host": "h", "pid": 7, "queues": ["interactive"], "slots": 8, "busy": 3, "draining": False,
        "seen_at": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    await redis.set(worker_presence("wkr_1"), orjson.dumps(record))
    await api.run(await api.thread())
    async with api.client(other_tenant.key) as operator:
        fleet = (await operator.get("/v1/fleet")).json()
        assert fleet["runs"]["queued"] == 1
        assert [worker["id"] for worker in fleet["workers"]] == ["wkr_1"]
    narrow = await make_tenant(database, ("runs",), other_tenant.id)
    async with api.client(narrow.key) as plain:
        fleet = (await plain.get("/v1/fleet")).json()
        assert fleet["runs"]["queued"] == 0
        assert fleet["workers"] is None


@proves("drain.order")
async def test_an_operator_orders_a_worker_to_drain_once(api: Api, database: Database, redis: Redis) -> None:
    worker_id, successor = "wkr_1@host-a:7", "wkr_2@host-a:7"
    path = f"/v1/fleet/workers/{worker_id}/drain"
    assert (await api.http.post(path)).json()["context"] == {"kind": "worker", "id": worker_id}
    assert (await api.http.post("/v1/fleet/workers/worker-0/drain")).status_code == 404
    for id_ in (worker_id, successor):
        await redis.zadd(workers_index(), {id_: 1})
        record = {
            "id": id_, "host": "host-a", "pid": 7, "queues": ["interactive"], "slots": 8, "busy": 3,
            "draining": False, "seen_at": "2026-01-01T00:00:00Z",
        }  # fmt: skip
        await redis.set(worker_presence(id_), orjson.dumps(record))
    narrow = await make_tenant(database, ("runs", "agents", "pause"), api.tenant.id)
    async with api.client(narrow.key) as plain:
        assert (await plain.post(path)).status_code == 403
    order = (await api.http.post(path)).json()
    assert order == {"worker_id": worker_id, "ordered_at": order["ordered_at"], "ended_at": None}
    assert (await api.http.post(path)).json() == order
    recorded = "SELECT array_agg(action || ' ' || target_id) FROM audit_events WHERE target_kind = 'worker'"
    assert await database.fetchval(recorded) == [f"worker.drained {worker_id}"]
    async with database.connection() as connection:
        assert [await is_drain_ordered(connection, each) for each in (worker_id, successor)] == [True, False]
    view = (await api.http.get("/v1/fleet")).json()
    assert [worker["drain_ordered_at"] for worker in view["workers"]] == [order["ordered_at"], None]
    assert view["drained"] == []
    await redis.delete(worker_presence(worker_id))
    assert (await api.http.get("/v1/fleet")).json()["drained"] == [order]
    async with api.client(narrow.key) as plain:
        assert (await plain.get("/v1/fleet")).json()["drained"] == []
    assert (await api.http.post(path)).status_code == 404


async def test_a_pause_lasts_until_it_is_resumed(api: Api, worker: ManualWorker) -> None:
    thread_id = await api.thread()
    await api.run(thread_id)
    for scope, target in (("fleet", None), ("tenant", None), ("agent", "nova")):
        body = {"scope": scope, "agent_id": target, "reason": "rehearsal"}
        for _ in range(2):
            paused = (await api.http.post("/v1/fleet/pause", json=body)).json()
            assert paused["switches"] == [IsPartialDict(scope=scope, target=target, reason="rehearsal")]
        assert await worker.next_claim(thread_id) is None, f"claimed though {scope} is paused"
        for _ in range(2):
            assert (await api.http.post("/v1/fleet/resume", json=body)).json()["switches"] == []
    await worker.claim(thread_id)


async def test_an_absent_agent_is_neither_paused_nor_resumed(api: Api) -> None:
    for change in ("pause", "resume"):
        refused = await api.http.post(f"/v1/fleet/{change}", json={"scope": "agent", "agent_id": "absent"})
        assert refused.status_code == 404


async def test_a_resume_rings_for_queued_runs(api: Api, redis: Redis) -> None:
    await api.http.post("/v1/fleet/pause", json={"scope": "tenant"})
    thread_id = await api.thread()
    for _ in range(2):
        await api.run(thread_id)
    assert _rung(api) <= 2
    await api.http.post("/v1/fleet/resume", json={"scope": "tenant"})
    await until(lambda: _rung(api) >= 3)


def _rung(api: Api) -> float:
    labels = {"queue": "interactive", "outcome": "rung"}
    return api.state.services.metrics.registry.get_sample_value("nova_doorbells_total", labels) or 0


async def test_a_pause_needs_the_scope_for_it(api: Api, database: Database) -> None:
    runs = await make_tenant(database, ("runs",), api.tenant.id)
    agents = await make_tenant(database, ("agents",), api.tenant.id)
    async with api.client(runs.key) as client:
        assert (await client.post("/v1/fleet/pause", json={"scope": "tenant"})).status_code == 403
    async with api.client(agents.key) as client:
        assert (await client.post("/v1/fleet/pause", json={"scope": "tenant"})).status_code == 200
        refused = await client.post("/v1/fleet/pause", json={"scope": "fleet"})
        assert (refused.status_code, refused.json()["context"]["needed"]) == (403, "operator")
        unknown = await client.post("/v1/fleet/pause", json={"scope": "agent", "agent_id": "nobody"})
        assert unknown.status_code == 404


async def test_probes_and_metrics_need_no_key(api: Api) -> None:
    await api.run(await api.thread())
    async with api.client(None) as machine:
        assert (await machine.get("/healthz")).json() == {"status": "ok"}
        ready = await machine.get("/readyz")
        assert (ready.status_code, ready.json()) == (
            200,
            {"ready": True, "checks": {"database": "ok", "schema": "ok", "broker": "ok"}},
        )
        metrics = (await machine.get("/metrics")).text
    assert 'nova_runs_accepted_total{queue="interactive",source="api"} 1.0' in metrics
    assert 'nova_queue_depth{queue="interactive"} 1.0' in metrics
    assert 'route="/v1/threads/{thread_id}/runs"' in metrics


async def test_an_old_schema_is_not_ready_and_the_answer_says_how_to_fix_it(api: Api, database: Database) -> None:
    await database.execute("UPDATE alembic_version SET version_num = '0001'")
    answer = await api.http.get("/readyz")
    assert answer.status_code == 503
    assert "nova migrate" in answer.json()["checks"]["schema"]


async def test_a_process_on_an_old_schema_refuses_requests_with_what_to_do(
    serve: Serve, settings: Settings, database: Database
) -> None:
    await database.execute("UPDATE alembic_version SET version_num = '0001'")
    old = await serve(settings)

    async def refused() -> dict[str, Any]:
        answer = await old.http.get("/v1/runs")
        return answer.json() if answer.status_code == 503 else {}

    problem = await until(refused)
    assert problem["code"] == "unavailable"
    assert "nova migrate" in problem["detail"]
    assert (await old.http.get("/healthz")).status_code == 200


async def test_the_schema_of_the_next_release_is_ready(api: Api, database: Database) -> None:
    await database.execute("UPDATE alembic_version SET version_num = '9999'")
    assert (await api.http.get("/readyz")).status_code == 200


async def test_answers_have_headers_against_sniffing_and_caching(api: Api) -> None:
    answer = await api.http.get("/v1/runs")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in answer.headers
