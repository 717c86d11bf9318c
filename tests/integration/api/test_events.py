"""The event stream: live, resumed, replayed from the ledger, and always ended."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import NamedTuple

import httpx2
import orjson
import pytest
from redis.asyncio import Redis

from nova_workers.config import Settings
from nova_workers.contracts import events as live
from nova_workers.contracts.engine import EngineError, ToolCall
from nova_workers.keys import open_streams, run_events
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api, Serve, until
from tests.integration.api.hands import Hands, Turn

LOOK = ToolCall(id="toolu_1", tool_name="look", params={}, step=0, sequence=0, status="completed")


class Frame(NamedTuple):
    """One server-sent event."""

    id: str
    type: str
    data: dict[str, object]


@asynccontextmanager
async def listening(
    api: Api, run_id: str, *, after: str | None = None, **request: object
) -> AsyncGenerator[tuple[httpx2.Response, AsyncGenerator[Frame]]]:
    """Open a run's stream; the block's frames come from the second value."""
    headers = {} if after is None else {"Last-Event-ID": after}
    async with api.http.stream("GET", f"/v1/runs/{run_id}/events", headers=headers) as response:
        async with aclosing(frames(response)) as feed:
            yield response, feed


async def frames(response: httpx2.Response) -> AsyncGenerator[Frame]:
    """Yield the events of a response."""
    async for event in httpx2.EventSource(response):
        yield Frame(event.id, event.event, orjson.loads(event.data))


async def whole(api: Api, run_id: str, after: str | None = None) -> list[Frame]:
    """Return the events of a run up to the end of its stream."""
    async with asyncio.timeout(15), listening(api, run_id, after=after) as (response, feed):
        assert response.status_code == 200, await response.aread()
        return [frame async for frame in feed]


async def begun(api: Api, hands: Hands) -> Turn:
    """Send a message and claim its run."""
    thread_id = await api.thread()
    await api.run(thread_id, "hello")
    return await hands.claim(thread_id)


async def test_events_come_as_they_happen_and_the_stream_ends_with_the_run(api: Api, hands: Hands) -> None:
    thread_id = await api.thread()
    run_id = await api.run(thread_id)
    async with listening(api, run_id) as (response, feed):
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-store, no-transform"
        turn = await hands.claim(thread_id)
        start = await anext(feed)
        assert (start.id, start.type, start.data["run_id"]) == ("1-1", "stream_start", run_id)
        await turn.emit(live.Token(text="Hel"), live.Token(text="lo"))
        assert [(await anext(feed)).data["text"] for _ in range(2)] == ["Hel", "lo"]
        final = await turn.finish("Hello")
        end = await anext(feed)
        assert (end.id, end.type, end.data["final"], end.data["text"]) == (str(final), "stream_end", True, "Hello")
        with pytest.raises(StopAsyncIteration):
            await anext(feed)


async def test_a_follower_of_a_queued_run_hears_heartbeats_until_it_starts(
    serve: Serve, settings: Settings, hands: Hands
) -> None:
    api = await serve(settings.model_copy(update={"api": settings.api.model_copy(update={"heartbeat_s": 0.05})}))
    thread_id = await api.thread()
    run_id = await api.run(thread_id)
    async with asyncio.timeout(10), api.http.stream("GET", f"/v1/runs/{run_id}/events") as response:
        lines = response.aiter_lines()
        heard = [await anext(lines) for _ in range(4)]
        assert heard == [": heartbeat", "", ": heartbeat", ""]
        await hands.play(thread_id)
        rest = [line async for line in lines]
        assert "event: stream_end" in rest


@pytest.mark.parametrize("parameter", ["header", "query"])
async def test_a_stream_resumes_exactly_after_the_last_event(api: Api, hands: Hands, parameter: str) -> None:
    turn = await begun(api, hands)
    await turn.emit(*(live.Token(text=str(number)) for number in range(5)))
    path = f"/v1/runs/{turn.claim.run_id}/events"
    headers = {"Last-Event-ID": "1-3"} if parameter == "header" else {}
    params = {} if parameter == "header" else {"after": "1-3"}
    async with asyncio.timeout(10), api.http.stream("GET", path, headers=headers, params=params) as response:
        async with aclosing(frames(response)) as feed:
            assert [(await anext(feed)).id for _ in range(3)] == ["1-4", "1-5", "1-6"]
            await turn.finish()
            assert [frame.type async for frame in feed] == ["stream_end"]


async def test_the_header_wins_over_the_query_since_a_browser_repeats_its_url(api: Api, hands: Hands) -> None:
    turn = await begun(api, hands)
    await turn.emit(live.Token(text="a"), live.Token(text="b"))
    final = await turn.finish()
    answer = await api.http.get(
        f"/v1/runs/{turn.claim.run_id}/events", params={"after": "1-1"}, headers={"Last-Event-ID": "1-3"}
    )
    assert answer.text.startswith(f"id: {final}\n")


async def test_a_run_that_is_over_is_replayed_with_every_token_while_redis_has_them(api: Api, hands: Hands) -> None:
    turn = await begun(api, hands)
    await turn.emit(live.Token(text="Hel"), live.Token(text="lo"))
    await turn.finish("Hello")
    replayed = await whole(api, turn.claim.run_id)
    assert [frame.type for frame in replayed] == ["stream_start", "token", "token", "stream_end"]
    assert [frame.id for frame in replayed] == ["1-1", "1-2", "1-3", "1-4"]


async def test_a_run_is_replayed_from_the_ledger_once_its_stream_is_gone(api: Api, hands: Hands, redis: Redis) -> None:
    turn = await begun(api, hands)
    await turn.emit(*(live.Token(text=letter) for letter in "looking around"))
    closed = await turn.commit("looking around", LOOK)
    await turn.emit(*(live.Token(text=letter) for letter in "found it"))
    final = await turn.finish("found it")
    await redis.delete(run_events(turn.claim.run_id))
    replayed = await whole(api, turn.claim.run_id)
    assert [frame.type for frame in replayed] == [
        "stream_start",
        "assistant_message",
        "tool_status",
        "tool_status",
        "step",
        "assistant_message",
        "step",
        "stream_end",
    ]
    assert [frame.data["text"] for frame in replayed if frame.type == "assistant_message"] == [
        "looking around",
        "found it",
    ]
    assert replayed[4].id == str(closed)
    end = replayed[-1]
    assert (end.id, end.data["status"], end.data["text"]) == (str(final), "succeeded", "found it")
    assert end.data["usage"] == {
        "type": "usage",
        "input_tokens": 30,
        "output_tokens": 12,
        "cache_read_tokens": 0,
        "cache_write_tokens": 0,
        "reasoning_tokens": 0,
        "cost_usd": 0.0,
    }
    positions = [live.EventCursor.parse(frame.id).key() for frame in replayed]
    assert positions == sorted(positions)
    assert positions.count(final.key()) == 1, "a client that has the final id has everything"


async def test_a_replay_skips_the_steps_that_the_client_has_and_gives_a_partly_seen_one_whole(
    api: Api, hands: Hands, redis: Redis
) -> None:
    turn = await begun(api, hands)
    await turn.emit(live.Token(text="one"), live.Token(text="!"))
    first = await turn.commit("one!")
    await turn.emit(live.Token(text="two"), live.Token(text="!"), live.Token(text="?"))
    second = await turn.commit("two!?")
    await turn.finish("three")
    await redis.delete(run_events(turn.claim.run_id))
    after_first = await whole(api, turn.claim.run_id, str(first))
    assert [frame.data.get("text") for frame in after_first] == ["two!?", None, "three", None, "three"]
    in_second = await whole(api, turn.claim.run_id, f"1-{first.seq + 1}")
    assert in_second == after_first
    after_second = await whole(api, turn.claim.run_id, str(second))
    assert [frame.type for frame in after_second] == ["assistant_message", "step", "stream_end"]


async def test_a_replay_of_several_attempts_tells_where_each_began(api: Api, hands: Hands, redis: Redis) -> None:
    turn = await begun(api, hands)
    await turn.commit("one")
    await turn.requeue()
    again = await hands.claim(turn.claim.thread_id)
    again.step, again.seq = turn.step, turn.seq
    await again.finish("two")
    await redis.delete(run_events(turn.claim.run_id))
    replayed = await whole(api, turn.claim.run_id)
    assert [(frame.type, frame.data.get("attempt")) for frame in replayed if frame.type == "stream_start"] == [
        ("stream_start", 1),
        ("stream_start", 2),
    ]
    assert [frame.id.split("-")[0] for frame in replayed] == ["1", "1", "1", "2", "2", "2", "2"]


async def test_a_failure_is_replayed_with_its_kind(api: Api, hands: Hands, redis: Redis) -> None:
    turn = await begun(api, hands)
    await turn.finish("so far", "failed", error=EngineError("rate_limit", "slow down", retryable=True))
    await redis.delete(run_events(turn.claim.run_id))
    error, end = (await whole(api, turn.claim.run_id))[-2:]
    assert error.data == {
        "type": "stream_error",
        "error": "slow down",
        "kind": "rate_limit",
        "retryable": True,
        "partial": True,
    }
    assert end.data["status"] == "failed"


@pytest.mark.parametrize("keep_stream", [True, False])
async def test_a_run_that_no_worker_began_has_one_event(api: Api, redis: Redis, keep_stream: bool) -> None:
    run_id = await api.run(await api.thread())
    await api.http.post(f"/v1/runs/{run_id}/cancel")
    if not keep_stream:
        await redis.delete(run_events(run_id))
    (end,) = await whole(api, run_id)
    assert (end.id, end.type, end.data["final"], end.data["status"]) == ("0-1", "stream_end", True, "canceled")


async def test_a_follower_of_a_queued_run_hears_that_it_was_withdrawn(api: Api) -> None:
    run_id = await api.run(await api.thread())
    async with asyncio.timeout(10), listening(api, run_id) as (_, feed):
        await api.http.delete(f"/v1/runs/{run_id}")
        assert [frame.data["status"] async for frame in feed] == ["canceled"]


async def test_whoever_has_the_final_event_is_told_to_stop_asking(api: Api, hands: Hands) -> None:
    turn = await begun(api, hands)
    final = await turn.finish()
    answer = await api.http.get(f"/v1/runs/{turn.claim.run_id}/events", headers={"Last-Event-ID": str(final)})
    assert (answer.status_code, answer.content) == (204, b"")


@pytest.mark.parametrize(
    "cursor",
    ["", "1", "1-", "-1", "a-b", "1-2-3", "1.5-2", "\N{ARABIC-INDIC DIGIT ONE}-1", "99999999999-1", "9" * 30 + "-1"],
)
async def test_a_cursor_of_another_form_is_refused(api: Api, hands: Hands, cursor: str) -> None:
    turn = await begun(api, hands)
    answer = await api.http.get(f"/v1/runs/{turn.claim.run_id}/events", params={"after": cursor})
    assert answer.status_code == 400
    assert answer.json()["code"] == "invalid_cursor"


async def test_a_cursor_from_the_future_is_refused(api: Api, hands: Hands) -> None:
    turn = await begun(api, hands)
    path = f"/v1/runs/{turn.claim.run_id}/events"
    other_attempt = await api.http.get(path, headers={"Last-Event-ID": "2-1"})
    assert (other_attempt.status_code, other_attempt.json()["code"]) == (400, "cursor_from_the_future")
    final = await turn.finish()
    beyond = await api.http.get(path, headers={"Last-Event-ID": f"1-{final.seq + 1}"})
    assert (beyond.status_code, beyond.json()["code"]) == (400, "cursor_from_the_future")


async def test_a_stream_ends_even_if_its_end_was_never_pushed(api: Api, hands: Hands) -> None:
    turn = await begun(api, hands)
    async with asyncio.timeout(15), listening(api, turn.claim.run_id) as (_, feed):
        await anext(feed)
        await turn.finish("silent", tell=False)
        assert [(frame.type, frame.data.get("text")) async for frame in feed][-1] == ("stream_end", "silent")


async def test_what_was_lost_with_redis_in_mid_run_is_filled_from_the_ledger(
    api: Api, hands: Hands, redis: Redis
) -> None:
    turn = await begun(api, hands)
    async with asyncio.timeout(15), listening(api, turn.claim.run_id) as (_, feed):
        await anext(feed)
        # A worker that could not reach Redis: events with ids that nobody ever saw.
        turn.events.refused = True
        turn.events.emit(live.Token(text="lost"))
        closed = await turn.commit("lost words", LOOK)
        turn.events.refused = False
        await turn.emit(live.Token(text="seen"))
        heard = [await anext(feed) for _ in range(5)]
        assert [frame.type for frame in heard] == ["assistant_message", "tool_status", "tool_status", "step", "token"]
        assert heard[0].data["text"] == "lost words"
        assert heard[3].id == str(closed)
        await turn.finish()
        assert [frame.type async for frame in feed] == ["stream_end"]


async def test_a_burst_larger_than_the_follower_s_queue_arrives_whole(api: Api, hands: Hands) -> None:
    turn = await begun(api, hands)
    async with asyncio.timeout(30), listening(api, turn.claim.run_id) as (_, feed):
        await anext(feed)
        for number in range(700):
            turn.events.emit(live.Token(text=str(number)))
            if number % 7 == 0:
                await asyncio.sleep(0)
        await turn.emit()
        await turn.finish()
        heard = [frame async for frame in feed]
    assert [frame.data["text"] for frame in heard[:-1]] == [str(number) for number in range(700)]


async def test_many_followers_share_one_redis_connection(api: Api, hands: Hands, redis: Redis) -> None:
    turn = await begun(api, hands)
    before = await redis.info("clients")

    async def follow() -> list[str]:
        return [frame.type for frame in await whole(api, turn.claim.run_id)]

    followers = [asyncio.create_task(follow()) for _ in range(20)]
    await until(lambda: api.state.services.hub.open_feeds == 20)
    during = await redis.info("clients")
    await turn.finish()
    heard = await asyncio.gather(*followers)
    assert all(types == ["stream_start", "stream_end"] for types in heard)
    assert during["pubsub_clients"] == before["pubsub_clients"] == 1


async def test_a_key_holds_so_many_streams_and_no_more(serve: Serve, settings: Settings, hands: Hands) -> None:
    api = await serve(settings.model_copy(update={"api": settings.api.model_copy(update={"max_streams_per_key": 2})}))
    turn = await begun(api, hands)
    run_id = turn.claim.run_id
    async with asyncio.timeout(10), listening(api, run_id) as (_, one), listening(api, run_id) as (_, two):
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
    await until(lambda: nobody_streams(api))
    assert (await whole(api, run_id))[-1].type == "stream_end"


async def nobody_streams(api: Api) -> bool:
    """Whether the key holds no stream, here and in Redis."""
    counted = await api.state.services.redis.zcard(open_streams(api.tenant.key_id))
    return counted == 0 and api.state.services.hub.open_feeds == 0


async def test_the_count_of_streams_holds_over_two_processes(serve: Serve, settings: Settings, hands: Hands) -> None:
    tight = settings.model_copy(update={"api": settings.api.model_copy(update={"max_streams_per_key": 1})})
    one, two = await serve(tight), await serve(tight)
    turn = await begun(one, hands)
    async with asyncio.timeout(10), listening(one, turn.claim.run_id) as (_, feed):
        await anext(feed)
        assert (await two.http.get(f"/v1/runs/{turn.claim.run_id}/events")).status_code == 429


async def test_a_client_that_leaves_frees_its_slot_and_its_feed(api: Api, hands: Hands) -> None:
    turn = await begun(api, hands)
    async with listening(api, turn.claim.run_id) as (_, feed):
        await anext(feed)
        assert api.state.services.hub.open_feeds == 1
    await until(lambda: nobody_streams(api))


async def test_create_and_stream_names_the_run_and_gives_its_events(api: Api, hands: Hands, database: Database) -> None:
    thread_id = await api.thread()
    path = f"/v1/threads/{thread_id}/runs/stream"
    async with asyncio.timeout(10), api.http.stream("POST", path, json={"message": "hello"}) as response:
        assert response.status_code == 200
        run_id = response.headers["nova-run-id"]
        assert response.headers["location"] == f"/v1/runs/{run_id}"
        await hands.play(thread_id)
        heard = [frame async for frame in frames(response)]
    assert heard[0].data["run_id"] == run_id
    assert [frame.type for frame in heard] == ["stream_start", "stream_end"]
    assert await database.fetchval("SELECT count(*) FROM runs") == 1


async def test_create_and_stream_again_under_the_same_key_replays_the_first_run(api: Api, hands: Hands) -> None:
    thread_id = await api.thread()
    path = f"/v1/threads/{thread_id}/runs/stream"
    key = {"Idempotency-Key": "k"}
    async with asyncio.timeout(10), api.http.stream("POST", path, json={"message": "hello"}, headers=key) as first:
        await hands.play(thread_id)
        await first.aread()
    again = await api.http.post(path, json={"message": "hello"}, headers=key)
    assert again.headers["idempotent-replayed"] == "true"
    assert again.headers["nova-run-id"] == first.headers["nova-run-id"]
    assert again.text == first.text


async def test_a_stop_of_the_server_lets_go_of_followers_and_waiters(api: Api, hands: Hands) -> None:
    turn = await begun(api, hands)
    async with asyncio.timeout(5), listening(api, turn.claim.run_id) as (_, feed):
        await anext(feed)
        waiting = asyncio.create_task(api.http.get(f"/v1/runs/{turn.claim.run_id}/wait"))
        await until(lambda: api.state.services.hub.open_feeds == 2)
        api.state.watch.close()
        with pytest.raises(StopAsyncIteration):
            await anext(feed)
        assert (await waiting).status_code == 202
