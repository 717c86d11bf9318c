"""Runs over HTTP: accepted, shown with their position, changed, withdrawn and canceled."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from redis.asyncio import Redis
from ulid import ULID

from nova_workers.base.keys import worker_presence, workers_index
from nova_workers.contracts.engine import EngineError
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import ManualWorker, Tenant
from tests.requirements import proves
from tests.support.waiting import until

NO_WORKER = "no worker is alive for the queue {!r}: start one with `nova worker`"


_IS_WAITING = (
    "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')"
)


async def test_a_message_is_accepted_with_the_position_of_its_run(api: Api) -> None:
    thread_id = await api.thread()
    answer = await api.http.post(
        f"/v1/threads/{thread_id}/runs",
        json={"message": "hello", "model": "haiku", "max_turns": 3, "queue": "background", "metadata": {"k": "v"}},
    )
    assert answer.status_code == 202
    run = answer.json()
    assert answer.headers["location"] == f"/v1/runs/{run['id']}"
    assert answer.headers["nova-run-id"] == run["id"]
    assert run["message"] == [{"type": "text", "text": "hello"}]
    stored = (await api.http.get(f"/v1/runs/{run['id']}")).json()
    assert stored == {**run, "position": 0, "waiting_for": NO_WORKER.format("background")}
    assert (stored["model"], stored["max_turns"], stored["queue"]) == ("haiku", 3, "background")


async def test_a_message_without_a_thread_makes_one(api: Api) -> None:
    run = (await api.http.post("/v1/runs", json={"message": "hello", "agent_id": "agent-builder"})).json()
    thread = (await api.http.get(f"/v1/threads/{run['thread_id']}")).json()
    assert thread["agent_id"] == "agent-builder"
    assert (await api.http.post("/v1/runs", json={"message": "hello"})).json()["agent_id"] == "nova"
    again = (await api.http.post("/v1/runs", json={"message": "more", "thread_id": run["thread_id"]})).json()
    assert again["thread_id"] == run["thread_id"]
    both = await api.http.post("/v1/runs", json={"message": "hello", "thread_id": run["thread_id"], "agent_id": "nova"})
    assert both.status_code == 422


async def test_a_queued_run_shows_its_position_and_what_it_waits_for(api: Api, worker: ManualWorker) -> None:
    thread_id = await api.thread()
    ids = [await api.run(thread_id, f"m{n}") for n in range(3)]
    await worker.claim(thread_id)
    runs = [(await api.http.get(f"/v1/runs/{run_id}")).json() for run_id in ids]
    assert [run["status"] for run in runs] == ["running", "queued", "queued"]
    assert [run["position"] for run in runs] == [None, 0, 1]
    assert runs[0]["waiting_for"] is None
    assert ids[0] in runs[1]["waiting_for"]


async def test_of_a_long_queue_only_so_many_are_counted_before_a_run(api: Api, database: Database) -> None:
    thread_id = await api.thread()
    await database.execute(
        "INSERT INTO runs (id, tenant_id, thread_id, agent_id, seq, content)"
        " SELECT 'run_of_many' || i, t.tenant_id, t.id, t.agent_id, i, '[]'"
        "   FROM threads t CROSS JOIN generate_series(1, 1003) AS i WHERE t.id = :thread_id",
        thread_id=thread_id,
    )
    places = {
        number: (await api.http.get(f"/v1/runs/run_of_many{number}")).json()["position"] for number in (1, 1000, 1003)
    }
    assert places == {1: 0, 1000: 999, 1003: 1000}
    waiting_for = (await api.http.get("/v1/runs/run_of_many1003")).json()["waiting_for"]
    assert waiting_for == "1,000 or more earlier in the thread's line"


async def test_a_paused_run_shows_the_pause(api: Api) -> None:
    run_id = await api.run(await api.thread())
    await api.http.post("/v1/fleet/pause", json={"scope": "agent", "agent_id": "nova", "reason": "rehearsal"})
    assert (await api.http.get(f"/v1/runs/{run_id}")).json()["waiting_for"] == "its agent is paused: rehearsal"
    await api.http.post("/v1/fleet/resume", json={"scope": "agent", "agent_id": "nova"})
    assert (await api.http.get(f"/v1/runs/{run_id}")).json()["waiting_for"] == NO_WORKER.format("interactive")


async def test_a_queued_run_waits_for_a_free_worker_where_one_of_its_queue_is_alive(api: Api, redis: Redis) -> None:
    run_id = await api.run(await api.thread())
    seen: list[str] = []
    for queues, draining in ((["background"], False), (["interactive"], True), (["interactive"], False)):
        record = {
            "id": "wkr_1", "host": "h", "pid": 7, "queues": queues, "slots": 8, "busy": 8, "draining": draining,
            "seen_at": "2026-01-01T00:00:00Z",
        }  # fmt: skip
        await redis.zadd(workers_index(), {"wkr_1": 1})
        await redis.set(worker_presence("wkr_1"), orjson.dumps(record))
        seen.append((await api.http.get(f"/v1/runs/{run_id}")).json()["waiting_for"])
    assert seen == [NO_WORKER.format("interactive")] * 2 + ["a free worker"]


async def test_a_finished_run_carries_its_outcome_and_usage(api: Api, worker: ManualWorker) -> None:
    thread_id = await api.thread()
    run_id = await api.run(thread_id)
    await worker.play(thread_id, "the answer")
    run = (await api.http.get(f"/v1/runs/{run_id}")).json()
    assert (run["status"], run["text"], run["stop_reason"]) == ("succeeded", "the answer", "end_turn")
    assert run["usage"]["input_tokens"] == 20
    assert run["position"] is None
    assert run["started_at"] <= run["finished_at"]


async def test_a_failed_run_says_what_failed(api: Api, worker: ManualWorker) -> None:
    thread_id = await api.thread()
    run_id = await api.run(thread_id)
    turn = await worker.claim(thread_id)
    await turn.finish("so far", "failed", error=EngineError("rate_limit", "slow down", retryable=True))
    run = (await api.http.get(f"/v1/runs/{run_id}")).json()
    assert run["error"] == {"kind": "rate_limit", "message": "slow down", "retryable": True}


async def test_runs_are_listed_newest_first_with_filters(api: Api, worker: ManualWorker) -> None:
    one, two = await api.thread(), await api.thread(agent_id="agent-builder")
    ids = [await api.run(one, "a"), await api.run(two, "b"), await api.run(one, "c", queue="background")]
    await worker.play(one)

    async def listed(**params: str) -> list[str]:
        return [run["id"] for run in (await api.http.get("/v1/runs", params=params)).json()["items"]]

    assert await listed() == ids[::-1]
    assert await listed(thread_id=one) == [ids[2], ids[0]]
    assert await listed(agent_id="agent-builder") == [ids[1]]
    assert await listed(status="succeeded") == [ids[0]]
    assert await listed(status="queued") == [ids[2], ids[1]]
    assert await listed(queue="background") == [ids[2]]
    assert await listed(status="queued", agent_id="nova") == [ids[2]]


async def test_a_queued_message_can_be_edited_until_a_worker_takes_it(api: Api, worker: ManualWorker) -> None:
    thread_id = await api.thread()
    run_id = await api.run(thread_id, "helo")
    edited = await api.http.patch(f"/v1/runs/{run_id}", json={"message": "hello"})
    assert edited.status_code == 200
    assert edited.json()["message"] == [{"type": "text", "text": "hello"}]
    turn = await worker.claim(thread_id)
    assert turn.claim.content[0]["text"] == "hello"
    late = await api.http.patch(f"/v1/runs/{run_id}", json={"message": "too late"})
    assert late.status_code == 409
    assert late.json()["code"] == "illegal_transition"


@proves("cancel.withdraw")
async def test_a_queued_run_can_be_withdrawn_but_a_running_one_cannot(api: Api, worker: ManualWorker) -> None:
    thread_id = await api.thread()
    first, second = await api.run(thread_id), await api.run(thread_id)
    await worker.claim(thread_id)
    assert (await api.http.delete(f"/v1/runs/{second}")).status_code == 204
    assert (await api.http.get(f"/v1/runs/{second}")).json()["status"] == "canceled"
    refused = await api.http.delete(f"/v1/runs/{first}")
    assert refused.status_code == 409


@proves("cancel.twice")
async def test_canceling_twice_changes_nothing(api: Api, worker: ManualWorker) -> None:
    thread_id = await api.thread()
    queued = await api.run(thread_id)
    for _ in range(2):
        answer = await api.http.post(f"/v1/runs/{queued}/cancel")
        assert answer.status_code == 200
        assert answer.json()["status"] == "canceled"
    running = await api.run(thread_id)
    await worker.claim(thread_id)
    asked = [(await api.http.post(f"/v1/runs/{running}/cancel")).json() for _ in range(2)]
    assert [run["status"] for run in asked] == ["running", "running"]
    assert asked[0]["cancel_requested_at"] == asked[1]["cancel_requested_at"] is not None


@proves("cancel.over")
async def test_a_run_that_succeeded_cannot_be_canceled(api: Api, worker: ManualWorker) -> None:
    thread_id = await api.thread()
    run_id = await api.run(thread_id)
    await worker.play(thread_id)
    answer = await api.http.post(f"/v1/runs/{run_id}/cancel")
    assert answer.status_code == 409
    assert answer.json()["context"]["status"] == "succeeded"


@proves("cancel.bulk")
async def test_many_runs_are_canceled_at_once(api: Api, worker: ManualWorker) -> None:
    thread_id, other = await api.thread(), await api.thread()
    ids = [await api.run(thread_id) for _ in range(3)]
    untouched = await api.run(other)
    await worker.claim(thread_id)
    answer = await api.http.post("/v1/runs/cancel", json={"thread_id": thread_id})
    assert answer.json() == {"canceled": 2, "requested": 1}
    assert (await api.http.get(f"/v1/runs/{ids[2]}")).json()["status"] == "canceled"
    assert (await api.http.get(f"/v1/runs/{untouched}")).json()["status"] == "queued"
    assert (await api.http.post("/v1/runs/cancel", json={})).status_code == 422


async def test_a_bulk_cancel_takes_the_filters_of_the_list_and_counts_without_canceling(
    api: Api, worker: ManualWorker
) -> None:
    thread_id, other = await api.thread(), await api.thread()
    await api.run(thread_id, queue="background")
    await worker.claim(thread_id)
    queued = [await api.run(thread_id, queue="background") for _ in range(2)]
    await api.run(other)
    middle = ULID.from_str(queued[1].removeprefix("run_")).datetime.isoformat()
    counts = {
        "all": ({"queue": "background"}, {"canceled": 2, "requested": 1}),
        "states": ({"queue": "background", "status": ["queued", "scheduled"]}, {"canceled": 2, "requested": 0}),
        "before": ({"thread_id": thread_id, "until": middle}, {"canceled": 1, "requested": 1}),
        "since": ({"since": middle}, {"canceled": 2, "requested": 0}),
        "trigger": ({"trigger_id": "trg_1"}, {"canceled": 0, "requested": 0}),
        "parent": ({"parent_run_id": queued[0]}, {"canceled": 0, "requested": 0}),
    }
    for name, (which, count) in counts.items():
        for _ in range(2):
            answer = await api.http.post("/v1/runs/cancel", json={**which, "dry_run": True})
            assert answer.json() == count, name
    assert (await api.http.post("/v1/runs/cancel", json={"dry_run": True})).status_code == 422
    assert (await api.http.post("/v1/runs/cancel", json={"status": []})).status_code == 422
    done = await api.http.post("/v1/runs/cancel", json={"queue": "background", "status": ["queued", "waiting"]})
    assert done.json() == {"canceled": 2, "requested": 0}
    left = (await api.http.get("/v1/runs", params={"status": ["queued", "running"]})).json()["items"]
    assert sorted(run["thread_id"] for run in left) == sorted([thread_id, other])


async def test_repeated_bulk_cancels_reach_all_runs_and_ask_no_run_again(api: Api, worker: ManualWorker) -> None:
    thread_id = await api.thread()
    await api.run(thread_id, queue="background")
    await worker.claim(thread_id)
    first, again = [await api.http.post("/v1/runs/cancel", json={"queue": "background"}) for _ in range(2)]
    assert first.json() == {"canceled": 0, "requested": 1}
    assert again.json() == {"canceled": 0, "requested": 0}


async def test_a_bulk_cancel_spares_a_run_that_no_longer_matches_once_its_row_is_locked(
    api: Api, worker: ManualWorker, database: Database
) -> None:
    thread_id = await api.thread()
    await api.run(thread_id, queue="background")
    async with database.transaction() as holder:
        await holder.execute("UPDATE runs SET queue = 'interactive' WHERE thread_id = :id", id=thread_id)
        meant = {"queue": "background"}
        asked = asyncio.create_task(api.http.post("/v1/runs/cancel", json=meant))
        await until(lambda: database.fetchval(_IS_WAITING), "the cancellation to wait for the row")
    assert (await asked).json() == {"canceled": 0, "requested": 0}


@proves("submit.reject")
async def test_reject_names_the_run_that_keeps_the_thread_busy(api: Api) -> None:
    thread_id = await api.thread()
    active = await api.run(thread_id)
    answer = await api.http.post(f"/v1/threads/{thread_id}/runs", json={"message": "x", "on_busy": "reject"})
    assert answer.status_code == 409
    assert answer.json()["code"] == "thread_busy"
    assert answer.json()["context"]["active_run_id"] == active


async def test_an_interrupt_names_the_run_that_it_stops(api: Api, worker: ManualWorker) -> None:
    thread_id = await api.thread()
    active = await api.run(thread_id)
    await worker.claim(thread_id)
    answer = await api.http.post(f"/v1/threads/{thread_id}/runs", json={"message": "x", "on_busy": "interrupt"})
    assert answer.headers["nova-interrupted-run-id"] == active


@proves("submit.idempotent")
async def test_an_idempotency_key_returns_the_first_run_again(api: Api, database: Database) -> None:
    thread_id = await api.thread()
    path = f"/v1/threads/{thread_id}/runs"
    key = {"Idempotency-Key": "order-7"}
    first = await api.http.post(path, json={"message": "hello", "metadata": {"a": 1, "b": 2}}, headers=key)
    again = await api.http.post(
        path, content=b'{"metadata": {"b":2, "a":1}, "on_busy":"enqueue", "message":"hello"}',
        headers={**key, "Content-Type": "application/json"},
    )  # fmt: skip
    assert "idempotent-replayed" not in first.headers
    assert (again.status_code, again.headers["idempotent-replayed"]) == (202, "true")
    assert again.json()["id"] == first.json()["id"]
    assert await database.fetchval("SELECT count(*) FROM runs") == 1


@proves("submit.idempotent-body")
async def test_an_idempotency_key_with_another_body_is_a_conflict(api: Api) -> None:
    thread_id = await api.thread()
    key = {"Idempotency-Key": "order-7"}
    first = await api.http.post(f"/v1/threads/{thread_id}/runs", json={"message": "hello"}, headers=key)
    other = await api.http.post(f"/v1/threads/{thread_id}/runs", json={"message": "bye"}, headers=key)
    assert other.status_code == 409
    assert other.json()["code"] == "idempotency_mismatch"
    assert other.json()["context"]["run_id"] == first.json()["id"]
    elsewhere = await api.http.post("/v1/runs", json={"message": "hello", "thread_id": thread_id}, headers=key)
    assert elsewhere.status_code == 409, "the same body at another path is another request"


@proves("submit.idempotent-concurrent")
async def test_concurrent_requests_with_one_key_make_one_run(api: Api, database: Database) -> None:
    thread_id = await api.thread()
    answers = await asyncio.gather(
        *(
            api.http.post(f"/v1/threads/{thread_id}/runs", json={"message": "hello"}, headers={"Idempotency-Key": "k"})
            for _ in range(8)
        )
    )
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert await database.fetchval("SELECT count(*) FROM runs") == 1


async def test_two_tenants_may_use_the_same_idempotency_key(api: Api, other_tenant: Tenant, database: Database) -> None:
    async with api.client(other_tenant.key) as other:
        answers = [
            await client.post("/v1/runs", json={"message": "hello"}, headers={"Idempotency-Key": "same"})
            for client in (api.http, other)
        ]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert await database.fetchval("SELECT count(*) FROM runs") == 2


@pytest.mark.parametrize("key", ["", "a b", "ä", "x" * 256, "tab\there"])
async def test_an_idempotency_key_of_another_form_is_refused(api: Api, key: str) -> None:
    answer = await api.http.post(
        "/v1/runs", json={"message": "hello"}, headers=[(b"Idempotency-Key", key.encode("latin-1"))]
    )
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "Idempotency-Key"


@proves("start.later")
async def test_a_run_may_start_later_and_shows_when(api: Api) -> None:
    start_at = datetime.now(UTC) + timedelta(days=1)
    answer = await api.http.post("/v1/runs", json={"message": "hello", "start_at": start_at.isoformat()})
    assert (answer.status_code, answer.json()["status"]) == (202, "scheduled")
    view = (await api.http.get(f"/v1/runs/{answer.json()['id']}")).json()
    assert (view["status"], datetime.fromisoformat(view["start_at"])) == ("scheduled", start_at)
    listed = (await api.http.get("/v1/runs", params={"status": "scheduled"})).json()["items"]
    assert [run["id"] for run in listed] == [view["id"]]
    withdrawn = await api.http.delete(f"/v1/runs/{view['id']}")
    assert withdrawn.status_code == 204
    assert (await api.http.get(f"/v1/runs/{view['id']}")).json()["status"] == "canceled"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"start_at": "2030-01-01T00:00:00"}, "start_at"),
        ({"start_at": "2199-01-01T00:00:00Z"}, "start_at"),
        ({"start_at": "0001-01-01T00:00:00+14:00"}, "start_at"),
        ({"start_at": 0}, "start_at"),
        ({"start_at": "2030-01-01T00:00:00Z", "on_busy": "interrupt"}, "start_at"),
        ({"on_busy": "collect", "collect_ms": 60_001}, "collect_ms"),
    ],
)
async def test_an_invalid_start_is_refused_with_its_field(api: Api, fields: dict[str, Any], named: str) -> None:
    answer = await api.http.post("/v1/runs", json={"message": "hello", **fields})
    assert answer.status_code == 422
    assert named in answer.text
