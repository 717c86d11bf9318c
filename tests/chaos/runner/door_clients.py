"""Clients of doors, one of each kind, which send a message after the other.

A client whose protocol resumes goes on after the last event that it has, at either API. Any other repeats its request
with the same id until it is answered.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Any, Final

from tests.chaos.history import DoorReading, Recorder, Submission
from tests.chaos.runner.doors.a2a import subscribe_to_task
from tests.chaos.runner.doors.acp import prompt_agent
from tests.chaos.runner.doors.ag_ui import follow_agent
from tests.chaos.runner.doors.exchange import Exchange
from tests.chaos.runner.doors.langgraph import stream_run
from tests.chaos.runner.doors.mcp import follow_task
from tests.chaos.runner.doors.openai import await_response, stream_response
from tests.chaos.runner.outside import plan_message

CLIENTS: Final[Mapping[str, Callable[[Exchange, str, str], Awaitable[DoorReading]]]] = {
    "a2a": subscribe_to_task,
    "acp": prompt_agent,
    "ag-ui": follow_agent,
    "langgraph": stream_run,
    "mcp-task": follow_task,
    "openai-stream": stream_response,
    "openai-wait": await_response,
}
"""Of each kind, what asks the agent and returns what it was answered."""


class DoorClients:
    """One client of each kind sends a message after the other, until `stop`.

    Args:
        urls: Of the APIs; each request goes to a random one.
        api_key: Of every request.
        agent: Who is asked.
        recorder: The record.
        rng: Of all choices.
        gap_s: Mean time between two messages of a client.
    """

    def __init__(
        self, urls: list[str], api_key: str, agent: str, recorder: Recorder, rng: random.Random, *, gap_s: float
    ) -> None:
        self._exchange = Exchange(urls, api_key, agent, recorder, rng)
        self._recorder = recorder
        self._rng = rng
        self._gap_s = gap_s
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin."""
        self._tasks = [asyncio.create_task(self._repeat(name, ask)) for name, ask in CLIENTS.items()]

    async def stop(self, timeout_s: float) -> None:
        """Send nothing new, and wait for the last answers; those that are missing then are recorded as such."""
        self._stopping.set()
        await asyncio.wait(self._tasks, timeout=timeout_s)
        for task in self._tasks:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._exchange.close()
        for error in ended:
            if isinstance(error, Exception):
                raise error

    async def _repeat(self, name: str, ask: Callable[[Exchange, str, str], Awaitable[DoorReading]]) -> None:
        for number in itertools.count(1):
            if self._stopping.is_set():
                return
            key, plan = f"{name}-{number}", f"{name.replace('-', '')}n{number}"
            steps = self._plan()
            words = [step["words"] for step in steps]
            work_s = sum(step["words"] / 5 * step["pace_s"] + 1 for step in steps)
            submission = Submission(0.0, key, name, "plan", plan, "enqueue", work_s=work_s, words=words)
            self._record("submission", asdict(submission))
            reading = DoorReading(0.0, name, key, "", "missing", "")
            try:
                reading = await ask(self._exchange, key, plan_message(plan, steps))
            finally:
                self._record("door", asdict(reading))
            await asyncio.sleep(self._rng.expovariate(1 / self._gap_s))

    def _plan(self) -> list[dict[str, Any]]:
        steps: list[dict[str, Any]] = [
            {"words": self._rng.choice((5, 40)), "pace_s": self._rng.choice((0.0, 0.05)), "tool": True}
            for _ in range(self._rng.choice((0, 1, 2)))
        ]
        return [*steps, {"words": self._rng.choice((10, 60)), "pace_s": 0.05}]

    def _record(self, what: str, fields: dict[str, Any]) -> None:
        del fields["at"]
        self._recorder.write(what, **fields)
