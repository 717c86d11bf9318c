"""The event stream: live, resumed, shared, bounded."""

import asyncio
from contextlib import aclosing

import pytest
from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.contracts import events as live
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api, Serve
from tests.integration.api.manual_worker import ManualWorker
from tests.integration.api.runs.event_streams import begun, frames, listening, no_follower_streams, whole
from tests.requirements import proves
from tests.support.waiting import until


async def test_events_come_as_they_happen_and_the_stream_ends_with_the_run(api: Api, worker: ManualWorker) -> None:
    thread_id = await api.thread()
    run_id = await api.run(thread_id)
    async with listening(api, run_id) as (response, feed):
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-store, no-transform"
        turn = await worker.claim(thread_id)
        start = await anext(feed)
        assert (start.id, start.type, start.data["run_id"]) == ("1-1", "stream_start", run_id)
        await turn.emit(live.Token(text="Hel"), live.Token(text="lo"))
        assert [(await anext(feed)).data["text"] for _ in range(2)] == ["Hel", "lo"]
        final = await turn.finish("Hello")
        end = await anext(feed)
        assert (end.id, end.type, end.data["final"], end.data["text"]) == (str(final), "stream_end", True, "Hello")
        with pytest.raises(StopAsyncIteration):
            await anext(feed)


async def test_a_follower_of_a_queued_run_gets_heartbeats_until_it_starts(
    serve: Serve, settings: Settings, worker: ManualWorker
) -> None:
    api = await serve(settings.model_copy(update={"api": settings.api.model_copy(update={"heartbeat_s": 0.05})}))
    thread_id = await api.thread()
    run_id = await api.run(thread_id)
    async with asyncio.timeout(60), api.http.stream("GET", f"/v1/runs/{run_id}/events") as response:
        lines = response.aiter_lines()
        heard = [await anext(lines) for _ in range(4)]
        assert heard == [": heartbeat", "", ": heartbeat", ""]
        await worker.play(thread_id)
        rest = [line async for line in lines]
        assert "event: stream_end" in rest


@pytest.mark.parametrize("parameter", ["header", "query"])
@proves("events.resume")
async def test_a_stream_resumes_exactly_after_the_last_event(api: Api, worker: ManualWorker, parameter: str) -> None:
    turn = await begun(api, worker)
    await turn.emit(*(live.Token(text=str(number)) for number in range(5)))
    path = f"/v1/runs/{turn.claim.run_id}/events"
    headers = {"Last-Event-ID": "1-3"} if parameter == "header" else {}
    params = {} if parameter == "header" else {"after": "1-3"}
    async with asyncio.timeout(60), api.http.stream("GET", path, headers=headers, params=params) as response:
        async with aclosing(frames(response)) as feed:
            assert [(await anext(feed)).id for _ in range(3)] == ["1-4", "1-5", "1-6"]
            await turn.finish()
            assert [frame.type async for frame in feed] == ["stream_end"]


async def test_the_header_wins_over_the_query_since_a_browser_repeats_its_url(api: Api, worker: ManualWorker) -> None:
    turn = await begun(api, worker)
    await turn.emit(live.Token(text="a"), live.Token(text="b"))
    final = await turn.finish()
    answer = await api.http.get(
        f"/v1/runs/{turn.claim.run_id}/events", params={"after": "1-1"}, headers={"Last-Event-ID": "1-3"}
    )
    assert answer.text.startswith(f"id: {final}\n")


async def test_a_follower_of_a_queued_run_learns_that_it_was_withdrawn(api: Api) -> None:
    run_id = await api.run(await api.thread())
    async with asyncio.timeout(60), listening(api, run_id) as (_, feed):
        await api.http.delete(f"/v1/runs/{run_id}")
        assert [frame.data["status"] async for frame in feed] == ["canceled"]


@proves("events.gap")
async def test_a_burst_larger_than_the_follower_s_queue_arrives_whole(api: Api, worker: ManualWorker) -> None:
    turn = await begun(api, worker)
    async with asyncio.timeout(60), listening(api, turn.claim.run_id) as (_, feed):
        await anext(feed)
        for number in range(700):
            # Alternating, since pieces of one kind are joined.
            piece = live.Token if number % 2 else live.Reasoning
            turn.events.emit(piece(text=str(number)))
            if number % 7 == 0:
                await asyncio.sleep(0)
        await turn.emit()
        await turn.finish()
        heard = [frame async for frame in feed]
    assert [frame.data["text"] for frame in heard[:-1]] == [str(number) for number in range(700)]


async def _subscribers(redis: Redis) -> int:
    return len(await redis.client_list(_type="pubsub"))


@proves("events.one-connection")
async def test_many_followers_share_one_redis_connection(api: Api, worker: ManualWorker, redis: Redis) -> None:
    turn = await begun(api, worker)
    before = await _subscribers(redis)

    async def follow() -> list[str]:
        return [frame.type for frame in await whole(api, turn.claim.run_id)]

    followers = [asyncio.create_task(follow()) for _ in range(20)]
    await until(lambda: api.state.services.hub.open_feeds == 20)
    during = await _subscribers(redis)
    await turn.finish()
    heard = await asyncio.gather(*followers)
    assert all(types == ["stream_start", "stream_end"] for types in heard)
    assert during == before == 1


async def test_a_key_has_a_limit_of_open_streams(serve: Serve, settings: Settings, worker: ManualWorker) -> None:
    api = await serve(settings.model_copy(update={"api": settings.api.model_copy(update={"max_streams_per_key": 2})}))
    turn = await begun(api, worker)
    run_id = turn.claim.run_id
    async with asyncio.timeout(60), listening(api, run_id) as (_, one), listening(api, run_id) as (_, two):
        await anext(one)
        await anext(two)
        refused = await api.http.get(f"/v1/runs/{run_id}/events")
        assert refused.status_code == 429
        assert refused.json()["code"] == "too_many_streams"
        assert int(refused.headers["retry-after"]) >= 1
        not_sent = await api.http.post("/v1/runs/stream", json={"message": "hello"})
        assert not_sent.status_code == 429
        assert len((await api.http.get("/v1/runs")).json()["items"]) == 1, "a refusal leaves no run behind"
        await turn.finish()
    await until(lambda: no_follower_streams(api))
    assert (await whole(api, run_id))[-1].type == "stream_end"


async def test_the_count_of_streams_holds_over_two_processes(
    serve: Serve, settings: Settings, worker: ManualWorker
) -> None:
    tight = settings.model_copy(update={"api": settings.api.model_copy(update={"max_streams_per_key": 1})})
    one, two = await serve(tight), await serve(tight)
    turn = await begun(one, worker)
    async with asyncio.timeout(60), listening(one, turn.claim.run_id) as (_, feed):
        await anext(feed)
        assert (await two.http.get(f"/v1/runs/{turn.claim.run_id}/events")).status_code == 429


@pytest.mark.usefixtures("own_api")
async def test_a_client_that_disconnects_frees_its_permit_and_its_feed(api: Api, worker: ManualWorker) -> None:
    turn = await begun(api, worker)
    async with listening(api, turn.claim.run_id) as (_, feed):
        await anext(feed)
        assert api.state.services.hub.open_feeds == 1
    await until(lambda: no_follower_streams(api))


async def test_create_and_stream_names_the_run_and_gives_its_events(
    api: Api, worker: ManualWorker, database: Database
) -> None:
    thread_id = await api.thread()
    path = f"/v1/threads/{thread_id}/runs/stream"
    async with asyncio.timeout(60), api.http.stream("POST", path, json={"message": "hello"}) as response:
        assert response.status_code == 200
        run_id = response.headers["nova-run-id"]
        assert response.headers["location"] == f"/v1/runs/{run_id}"
        await worker.play(thread_id)
        heard = [frame async for frame in frames(response)]
    assert heard[0].data["run_id"] == run_id
    assert [frame.type for frame in heard] == ["stream_start", "stream_end"]
    assert await database.fetchval("SELECT count(*) FROM runs") == 1


async def test_create_and_stream_again_under_the_same_key_replays_the_first_run(api: Api, worker: ManualWorker) -> None:
    thread_id = await api.thread()
    path = f"/v1/threads/{thread_id}/runs/stream"
    key = {"Idempotency-Key": "k"}
    async with asyncio.timeout(60), api.http.stream("POST", path, json={"message": "hello"}, headers=key) as first:
        await worker.play(thread_id)
        await first.aread()
    again = await api.http.post(path, json={"message": "hello"}, headers=key)
    assert again.headers["idempotent-replayed"] == "true"
    assert again.headers["nova-run-id"] == first.headers["nova-run-id"]
    assert again.text == first.text


@pytest.mark.usefixtures("own_api")
async def test_a_stopping_server_ends_the_requests_of_followers_and_waiters(api: Api, worker: ManualWorker) -> None:
    turn = await begun(api, worker)
    async with asyncio.timeout(60), listening(api, turn.claim.run_id) as (_, feed):
        await anext(feed)
        waiting = asyncio.create_task(api.http.get(f"/v1/runs/{turn.claim.run_id}/wait"))
        await until(lambda: api.state.services.hub.open_feeds == 2)
        api.state.watch.close()
        with pytest.raises(StopAsyncIteration):
            await anext(feed)
        assert (await waiting).status_code == 202


_HOLD = """
UPDATE runs SET hold = 'provider', held_since = now(), held_until = now() + interval '1 hour',
       hold_detail = '{"provider": "anthropic", "outage": "key_refused", "message": "invalid x-api-key"}'
 WHERE id = :run_id
"""


@pytest.mark.parametrize("watch_every_s", [0.05, 3600.0], ids=["without a hint", "with a hint"])
@proves("runs.holds")
async def test_a_follower_of_a_run_that_is_held_before_its_first_attempt_gets_the_reason(
    serve: Serve,
    settings: Settings,
    database: Database,
    worker: ManualWorker,
    monkeypatch: pytest.MonkeyPatch,
    watch_every_s: float,
) -> None:
    monkeypatch.setattr("api.app._WATCH_EVERY_S", watch_every_s)
    api = await serve(settings)
    thread_id = await api.thread()
    run_id = await api.run(thread_id)
    async with asyncio.timeout(60), listening(api, run_id) as (_, feed):
        await database.execute(_HOLD, run_id=run_id)
        reading = asyncio.create_task(anext(feed))

        def is_read() -> bool:
            if watch_every_s > 1:
                # Again, as one that comes before the subscription is lost.
                api.state.services.publisher.hint([run_id])
            return reading.done()

        await until(is_read, "the reason")
        told = reading.result()
        assert (told.id, told.type, told.data["reason"]) == ("0-0-1", "provider_unavailable", "key_refused")
        await database.execute("UPDATE runs SET hold = NULL, held_until = NULL WHERE id = :run_id", run_id=run_id)
        await worker.play(thread_id)
        rest = [frame async for frame in feed]
        assert [rest[0].id, rest[-1].type] == ["1-1", "stream_end"]
