"""Create and wait: woken by the run's end, bounded, and without effect on the run."""

import asyncio
import time
from collections.abc import MutableMapping
from typing import Any

import httpx2
import pytest
from redis.asyncio import Redis

from nova_workers.base.config import Settings
from tests.integration.api.conftest import Api, Serve
from tests.integration.api.manual_worker import ManualWorker
from tests.support.waiting import until


async def _feeds(api: Api, count: int) -> None:
    await until(lambda: api.state.services.hub.open_feeds == count)


async def _is_accepted(api: Api, worker: ManualWorker) -> None:
    """Wait until a message that a client waits for is queued. It is followed before it is accepted."""
    await _feeds(api, 1)
    await until(lambda: worker.database.fetchval("SELECT count(*)::int FROM runs WHERE status = 'queued'"))


@pytest.mark.usefixtures("own_api")
async def test_the_answer_is_the_run_once_it_has_ended(api: Api, worker: ManualWorker) -> None:
    thread_id = await api.thread()
    message = {"message": "hello", "metadata": {"of": "a test"}, "max_turns": 3}
    waiting = asyncio.create_task(api.http.post(f"/v1/threads/{thread_id}/runs/wait", json=message))
    await _is_accepted(api, worker)
    await worker.play(thread_id, "the answer")
    answer = await waiting
    run = answer.json()
    assert answer.status_code == 200
    assert (run["status"], run["text"], run["position"], run["waits"]) == ("succeeded", "the answer", None, [])
    assert run["usage"] is not None
    assert answer.headers["nova-run-id"] == run["id"]
    assert (await api.http.get(f"/v1/runs/{run['id']}")).json() == run


async def test_a_run_that_takes_too_long_is_returned_in_its_current_state_and_continues(
    api: Api, worker: ManualWorker
) -> None:
    thread_id = await api.thread()
    answer = await api.http.post(
        f"/v1/threads/{thread_id}/runs/wait", json={"message": "hello"}, params={"timeout_s": 0.05}
    )
    assert answer.status_code == 202
    assert answer.json()["status"] == "queued"
    await worker.play(thread_id, "late")
    again = await api.http.get(f"/v1/runs/{answer.json()['id']}/wait")
    assert (again.status_code, again.json()["text"]) == (200, "late")


async def test_waiting_is_bounded_by_the_server_s_limit(serve: Serve, settings: Settings) -> None:
    api = await serve(settings.model_copy(update={"api": settings.api.model_copy(update={"wait_timeout_s": 0.05})}))
    answer = await api.http.post("/v1/runs/wait", json={"message": "hello"}, params={"timeout_s": 60})
    assert answer.status_code == 202


@pytest.mark.usefixtures("own_api")
async def test_a_waiter_that_disconnects_does_not_stop_the_run(
    api: Api, worker: ManualWorker, logs: list[MutableMapping[str, Any]]
) -> None:
    thread_id = await api.thread()
    waiting = asyncio.create_task(api.http.post(f"/v1/threads/{thread_id}/runs/wait", json={"message": "hello"}))
    await _is_accepted(api, worker)
    waiting.cancel()
    await _feeds(api, 0)
    await until(lambda: any(line["event"] == "http_request.client_left" for line in logs))
    assert not [line for line in logs if line["log_level"] == "error" or "exc_info" in line]
    turn = await worker.play(thread_id)
    assert (await api.http.get(f"/v1/runs/{turn.claim.run_id}")).json()["status"] == "succeeded"


@pytest.mark.usefixtures("own_api")
async def test_a_waiter_is_answered_though_the_end_was_never_pushed(api: Api, worker: ManualWorker) -> None:
    thread_id = await api.thread()
    waiting = asyncio.create_task(api.http.post(f"/v1/threads/{thread_id}/runs/wait", json={"message": "hello"}))
    await _is_accepted(api, worker)
    turn = await worker.claim(thread_id)
    await turn.finish("silent", publish=False)
    async with asyncio.timeout(60):
        assert (await waiting).json()["text"] == "silent"


async def test_a_waiter_that_comes_just_after_the_end_is_answered_at_once(
    api: Api, worker: ManualWorker, redis: Redis
) -> None:
    thread_id = await api.thread()
    run_id = await api.run(thread_id)
    await worker.play(thread_id)
    await redis.flushdb()
    began_s = time.monotonic()
    for _ in range(30):
        assert (await api.http.get(f"/v1/runs/{run_id}/wait")).status_code == 200
    # The next look at waiting runs comes 2 s after the last: 60 s for all.
    assert time.monotonic() - began_s < 45


@pytest.mark.usefixtures("own_api")
async def test_a_refused_message_leaves_no_follower(api: Api) -> None:
    refused = await api.http.post("/v1/runs/wait", json={"message": "hello", "agent_id": "unknown"})
    assert refused.status_code == 404
    assert api.state.services.hub.open_feeds == 0


@pytest.mark.usefixtures("own_api")
async def test_a_repeated_message_is_answered_at_the_end_of_the_first_one(api: Api, worker: ManualWorker) -> None:
    thread_id = await api.thread()

    def send() -> asyncio.Task[httpx2.Response]:
        headers = {"Idempotency-Key": "once"}
        return asyncio.create_task(
            api.http.post(f"/v1/threads/{thread_id}/runs/wait", json={"message": "hello"}, headers=headers)
        )

    first = send()
    await _is_accepted(api, worker)
    again = send()
    await _feeds(api, 2)
    await worker.play(thread_id, "the answer")
    answers = [await first, await again]
    assert [answer.json()["text"] for answer in answers] == ["the answer", "the answer"]
    assert answers[0].json()["id"] == answers[1].json()["id"]
    assert answers[1].headers["idempotent-replayed"] == "true"
