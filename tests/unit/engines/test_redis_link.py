"""Requests to Redis that may stay unanswered."""

import asyncio

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from nova_workers.engines.resilience.redis_link import RedisLink


class Line:
    """A Redis that can be unavailable, and a clock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.asked = 0
        self.error: Exception | None = None
        self.link = RedisLink(timeout_s=0.05, away_s=5.0, clock=lambda: self.now_s, purpose="a test")

    async def answer(self) -> str:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return "yes"


async def test_an_answer_comes_in_a_tuple() -> None:
    line = Line()
    assert await line.link.ask(line.answer) == ("yes",)


@pytest.mark.parametrize("error", [RedisConnectionError("gone"), OSError("no file"), TimeoutError()])
async def test_an_unavailable_redis_is_not_asked_for_a_while(error: Exception) -> None:
    line = Line()
    line.error = error
    assert [await line.link.ask(line.answer) for _ in range(3)] == [None] * 3
    assert line.asked == 1
    line.now_s, line.error = 5.0, None
    assert await line.link.ask(line.answer) == ("yes",)


async def test_a_hanging_redis_times_out() -> None:
    line = Line()
    assert await line.link.ask(lambda: asyncio.sleep(60)) is None
    assert await line.link.ask(line.answer) is None


async def test_a_defect_is_not_taken_for_an_outage() -> None:
    line = Line()
    line.error = KeyError("a bug")
    with pytest.raises(KeyError):
        await line.link.ask(line.answer)


async def test_a_cancellation_that_the_client_swallows_still_propagates() -> None:
    line, began = Line(), asyncio.Event()

    async def swallow() -> str:
        began.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "as if nothing had been"
        return "too late"

    asking = asyncio.create_task(line.link.ask(swallow))
    await began.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
