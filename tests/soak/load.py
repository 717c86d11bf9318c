"""Steady load: first as much as the fleet takes, to know half of it; then half of it, at fixed times."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.bench.http import LoadClient
from tests.bench.stage import scripted

_CLIENTS = 32
_MOST_AT_ONCE = 512
"""Requests at once. Beyond it the fleet does not keep up, and arrivals are counted as left out."""

_MESSAGES: Sequence[str] = (
    scripted({"say": "One short answer."}),
    scripted({"think": "Let me see."}, {"say": "A longer answer, in several tokens, that a client may follow."}),
    scripted({"say": "I look it up. "}, {"tool": {"name": "look", "input": {}}}, {"say": "That is it."}),
    scripted({"sleep_s": 1.0}, {"say": "It took a second."}),
)


async def capacity(client: LoadClient, *, seconds: float) -> float:
    """Return whole turns a second with clients that each send, wait for the end and send again."""
    done, until_s = 0, time.monotonic() + seconds

    async def one() -> None:
        nonlocal done
        while time.monotonic() < until_s:
            answer = await client.post("/v1/runs/wait", {"message": _MESSAGES[0]})
            assert answer.status == 200, (answer.status, answer.body)
            done += 1

    began_s = time.monotonic()
    await asyncio.gather(*(one() for _ in range(_CLIENTS)))
    return done / (time.monotonic() - began_s)


@dataclass(slots=True)
class Load:
    """Sends messages at a rate, each in a thread of its own, so that no model context grows.

    Attributes:
        sent: Messages that were accepted and ended.
        failed: Answers by what was wrong with them.
        left_out: Arrivals that found too many requests open.
        latencies_s: Seconds from when a message was due to its end, of those since the last `take`; without
            the second that some of them sleep.
    """

    client: LoadClient
    rate: float
    sent: int = 0
    left_out: int = 0
    failed: Counter[str] = field(default_factory=Counter[str])
    latencies_s: list[float] = field(default_factory=list[float])

    async def run(self, *, until_s: float) -> None:
        """Send until a moment of `time.monotonic`, and wait for what is open."""
        open_requests: set[asyncio.Task[None]] = set()
        number, due_s = 0, time.monotonic()
        while due_s < until_s:
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            if len(open_requests) >= _MOST_AT_ONCE:
                self.left_out += 1
            else:
                task = asyncio.create_task(self._send(number, due_s))
                open_requests.add(task)
                task.add_done_callback(open_requests.discard)
            number += 1
            due_s += 1 / self.rate
        if open_requests:
            await asyncio.wait(open_requests)

    def take(self) -> list[float]:
        """Return the latencies since the last call."""
        taken, self.latencies_s = self.latencies_s, []
        return taken

    async def _send(self, number: int, due_s: float) -> None:
        message = _MESSAGES[number % len(_MESSAGES)]
        try:
            answer = await self.client.post("/v1/runs/wait", {"message": message})
        except (OSError, TimeoutError) as error:
            self.failed[type(error).__name__] += 1
            return
        if answer.status != 200 or answer.json()["status"] != "succeeded":
            self.failed[f"{answer.status} {answer.body[:120].decode(errors='replace')}"] += 1
            return
        self.sent += 1
        slept_s = 1.0 if "sleep_s" in message else 0.0
        self.latencies_s.append(time.monotonic() - due_s - slept_s)
