"""Events that Redis lost come from the ledger, and every stream ends."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from redis.asyncio import Redis

from api.streaming.following import Target
from nova_workers.base.keys import run_events
from nova_workers.contracts import events as live
from nova_workers.contracts.engine import EngineError, ToolCall
from nova_workers.domain.streams.rules.wire import LiveEvent
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import ManualWorker
from tests.integration.api.runs.event_streams import begun, listening, whole

LOOK = ToolCall(id="toolu_1", tool_name="look", params={}, step=0, sequence=0, status="completed")


async def test_an_ended_run_is_replayed_with_every_token_while_redis_has_them(api: Api, worker: ManualWorker) -> None:
    turn = await begun(api, worker)
    await turn.emit(live.Token(text="Hel"), live.Token(text="lo"))
    await turn.finish("Hello")
    replayed = await whole(api, turn.claim.run_id)
    assert [frame.type for frame in replayed] == ["stream_start", "token", "token", "stream_end"]
    assert [frame.id for frame in replayed] == ["1-1", "1-2", "1-3", "1-4"]


@dataclass
class _Slices:
    """A follower that keeps what it gets, and does not wait for anything."""

    idle_every_s: float = 15.0
    slices: list[Sequence[LiveEvent]] = field(default_factory=list[Sequence[LiveEvent]])

    async def on_events(self, events: Sequence[LiveEvent]) -> None:
        self.slices.append(events)

    async def on_idle(self) -> None: ...
    async def until_gone(self) -> None: ...


@pytest.mark.usefixtures("own_api")
async def test_a_long_ended_run_is_sent_in_slices_between_which_other_streams_continue(
    api: Api, worker: ManualWorker
) -> None:
    turn = await begun(api, worker)
    await turn.emit(*(live.Thinking() for _ in range(3_000)))
    final = await turn.finish("long")
    target, follower = Target(api.tenant.id, turn.claim.run_id), _Slices()
    replaying = asyncio.create_task(api.state.follower.follow(target, await api.state.follower.find(target), follower))
    turns = 0
    while not replaying.done():
        turns += len(follower.slices) in (1, 2)
        await asyncio.sleep(0)
    sent = [str(event.cursor) for part in follower.slices for event in part]
    assert sent == [f"1-{seq}" for seq in range(1, final.seq + 1)]
    assert max(map(len, follower.slices)) <= 500
    assert turns >= 2


async def test_an_ended_run_whose_stream_lost_a_part_is_sent_from_there_on_from_the_ledger(
    api: Api, worker: ManualWorker, redis: Redis
) -> None:
    turn = await begun(api, worker)
    await turn.emit(live.Token(text="one"))
    first = await turn.commit("one")
    await turn.emit(live.Token(text="tw"))
    await turn.emit(lost := live.Token(text="o"))
    await redis.xdel(run_events(turn.claim.run_id), str(turn.said[-1]))
    await turn.finish("two")
    replayed = await whole(api, turn.claim.run_id)
    assert [(frame.type, frame.data.get("text")) for frame in replayed] == [
        ("stream_start", None),
        ("token", "one"),
        ("usage", None),
        ("step", None),
        ("token", "tw"),
        ("assistant_message", "two"),
        ("step", None),
        ("stream_end", "two"),
    ]
    assert lost.text not in [frame.data.get("text") for frame in replayed]
    assert replayed[3].id == str(first)


async def test_a_run_is_replayed_from_the_ledger_once_its_stream_is_gone(
    api: Api, worker: ManualWorker, redis: Redis
) -> None:
    turn = await begun(api, worker)
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
        "usage",
        "step",
        "assistant_message",
        "step",
        "stream_end",
    ]
    assert [frame.data["text"] for frame in replayed if frame.type == "assistant_message"] == [
        "looking around",
        "found it",
    ]
    assert replayed[5].id == str(closed)
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
    assert positions == sorted(set(positions))


async def test_a_replay_skips_the_steps_that_the_client_has_and_repeats_a_partly_seen_one(
    api: Api, worker: ManualWorker, redis: Redis
) -> None:
    turn = await begun(api, worker)
    await turn.emit(live.Token(text="one"), live.Token(text="!"))
    first = await turn.commit("one!")
    await turn.emit(live.Token(text="two"), live.Token(text="!"), live.Token(text="?"))
    second = await turn.commit("two!?")
    await turn.finish("three")
    await redis.delete(run_events(turn.claim.run_id))
    after_first = await whole(api, turn.claim.run_id, str(first))
    assert [frame.data.get("text") for frame in after_first] == ["two!?", None, None, "three", None, "three"]
    in_second = await whole(api, turn.claim.run_id, f"1-{first.seq + 1}")
    assert [frame.data for frame in in_second] == [frame.data for frame in after_first]
    after_second = await whole(api, turn.claim.run_id, str(second))
    assert [frame.type for frame in after_second] == ["assistant_message", "step", "stream_end"]


async def test_a_replay_of_several_attempts_has_the_start_of_each(api: Api, worker: ManualWorker, redis: Redis) -> None:
    turn = await begun(api, worker)
    await turn.commit("one")
    await turn.requeue()
    again = await worker.claim(turn.claim.thread_id)
    again.step, again.seq = turn.step, turn.seq
    await again.finish("two")
    await redis.delete(run_events(turn.claim.run_id))
    replayed = await whole(api, turn.claim.run_id)
    assert [(frame.type, frame.data.get("attempt")) for frame in replayed if frame.type == "stream_start"] == [
        ("stream_start", 1),
        ("stream_start", 2),
    ]
    closed, final = next(frame.id for frame in replayed if frame.type == "step"), replayed[-1].id
    assert (closed, final) == ("1-3", "2-2")
    positions = [live.EventCursor.parse(frame.id).key() for frame in replayed]
    assert positions == sorted(set(positions))


async def test_a_failure_is_replayed_with_its_kind(api: Api, worker: ManualWorker, redis: Redis) -> None:
    turn = await begun(api, worker)
    await turn.finish("so far", "failed", error=EngineError("rate_limit", "slow down", retryable=True))
    await redis.delete(run_events(turn.claim.run_id))
    error, end = (await whole(api, turn.claim.run_id))[-2:]
    assert error.data.pop("at")
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


async def test_a_client_that_has_the_final_event_is_asked_not_to_reconnect(api: Api, worker: ManualWorker) -> None:
    turn = await begun(api, worker)
    final = await turn.finish()
    answer = await api.http.get(f"/v1/runs/{turn.claim.run_id}/events", headers={"Last-Event-ID": str(final)})
    assert (answer.status_code, answer.content) == (204, b"")


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "1",
        "1-",
        "-1",
        "a-b",
        "1-2-3-4",
        "1-2-",
        "1.5-2",
        "\N{ARABIC-INDIC DIGIT ONE}-1",
        "99999999999-1",
        "9" * 30 + "-1",
    ],
)
async def test_a_cursor_of_another_form_is_refused(api: Api, worker: ManualWorker, cursor: str) -> None:
    turn = await begun(api, worker)
    answer = await api.http.get(f"/v1/runs/{turn.claim.run_id}/events", params={"after": cursor})
    assert answer.status_code == 400
    assert answer.json()["code"] == "invalid_cursor"


async def test_a_cursor_from_the_future_is_refused(api: Api, worker: ManualWorker) -> None:
    turn = await begun(api, worker)
    path = f"/v1/runs/{turn.claim.run_id}/events"
    other_attempt = await api.http.get(path, headers={"Last-Event-ID": "2-1"})
    assert (other_attempt.status_code, other_attempt.json()["code"]) == (400, "cursor_from_the_future")
    final = await turn.finish()
    beyond = await api.http.get(path, headers={"Last-Event-ID": f"1-{final.seq + 1}"})
    assert (beyond.status_code, beyond.json()["code"]) == (400, "cursor_from_the_future")


async def test_a_stream_ends_even_if_its_end_was_never_pushed(api: Api, worker: ManualWorker) -> None:
    turn = await begun(api, worker)
    async with asyncio.timeout(60), listening(api, turn.claim.run_id) as (_, feed):
        await anext(feed)
        await turn.finish("silent", publish=False)
        assert [(frame.type, frame.data.get("text")) async for frame in feed][-1] == ("stream_end", "silent")


async def test_what_was_lost_with_redis_in_mid_run_is_filled_from_the_ledger(
    api: Api, worker: ManualWorker, redis: Redis
) -> None:
    turn = await begun(api, worker)
    async with asyncio.timeout(60), listening(api, turn.claim.run_id) as (_, feed):
        await anext(feed)
        # A worker that could not reach Redis: ids of events that no follower got.
        turn.events.refused = True
        turn.events.emit(live.Token(text="lost"))
        closed = await turn.commit("lost words", LOOK)
        turn.events.refused = False
        await turn.emit(live.Token(text="seen"))
        heard = [await anext(feed) for _ in range(6)]
        assert [frame.type for frame in heard] == [
            "assistant_message",
            "tool_status",
            "tool_status",
            "usage",
            "step",
            "token",
        ]
        assert heard[0].data["text"] == "lost words"
        assert heard[4].id == str(closed)
        await turn.finish()
        assert [frame.type async for frame in feed] == ["stream_end"]
