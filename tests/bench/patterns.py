"""How clients put load on a site: in a closed loop, one by one, or all at once."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tests.bench.http import Answer
from tests.bench.installed import Site

_IDLE_GAP_S = 0.15
"""Between two requests of one client: effects are rung for after 0.1 s."""


@dataclass(slots=True)
class Window:
    """What one site did in one window of a pattern."""

    turns: int
    wall_s: float
    took_s: list[float] = field(default_factory=list[float])


async def post_wait(site: Site, message: str) -> float:
    """Send a message and wait for its end in one request; return how many seconds it took."""
    answer = await site.client.post("/v1/runs/wait", {"message": message})
    _expect(answer)
    return answer.ended_s - answer.began_s


async def new_conversation(site: Site, message: str) -> float:
    """Create a thread, send it a message and wait for its end; return how many seconds both requests took."""
    thread = await site.client.post("/v1/threads", {})
    _expect(thread)
    answer = await site.client.post(f"/v1/threads/{thread.json()['id']}/runs/wait", {"message": message})
    _expect(answer)
    return answer.ended_s - thread.began_s


async def post_then_wait(site: Site, message: str) -> float:
    """Send a message, and wait for its end in a second request; return how many seconds both took."""
    posted = await site.client.post("/v1/runs", {"message": message})
    _expect(posted)
    answer = await site.client.get(f"/v1/runs/{posted.json()['id']}/wait")
    _expect(answer)
    return answer.ended_s - posted.began_s


async def first_event(site: Site, message: str) -> float:
    """Send a message and follow it; return how many seconds passed until its first event."""
    first_s: list[float] = []

    def see(piece: bytes, at_s: float) -> None:
        if not first_s and b"event: stream_start" in piece:
            first_s.append(at_s)

    answer = await site.client.post("/v1/runs/stream", {"message": message}, on_piece=see)
    _expect(answer)
    return first_s[0] - answer.began_s


async def closed_loop(
    site: Site, turn: Callable[[Site, str], Awaitable[float]], clients: int, seconds: float, most: int = 10**9
) -> Window:
    """Let clients send a message each, one after the other, for some seconds or until most turns have ended."""
    began_s = time.perf_counter()
    took_s: list[float] = []

    async def client() -> None:
        while time.perf_counter() < began_s + seconds and len(took_s) < most:
            took_s.append(await turn(site, "And again"))

    await asyncio.gather(*(client() for _ in range(clients)))
    return Window(len(took_s), time.perf_counter() - began_s, took_s)


async def one_by_one(
    site: Site, turn: Callable[[Site, str], Awaitable[float]], count: int, gap_s: float = _IDLE_GAP_S
) -> Window:
    """Let one client send messages with a pause between them, in which the effects of the one before happen."""
    began_s = time.perf_counter()
    took_s: list[float] = []
    for _ in range(max(count, 1)):
        took_s.append(await turn(site, "How long does this take?"))
        if gap_s:
            await asyncio.sleep(gap_s)
    return Window(len(took_s), time.perf_counter() - began_s, took_s)


async def burst(site: Site, count: int, seconds: float) -> Window:
    """Send messages at the same moment, whose turns sleep."""
    began_s = time.perf_counter()
    took_s = await asyncio.gather(*(post_wait(site, site.sleeping(seconds)) for _ in range(count)))
    return Window(count, time.perf_counter() - began_s, list(took_s))


def _expect(answer: Answer) -> None:
    assert answer.status in (200, 201, 202), (answer.status, answer.body)
