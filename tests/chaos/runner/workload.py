"""What clients do while faults happen: conversations with steering, interrupts and cancels, a trigger, a webhook."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from dataclasses import dataclass
from typing import Any

from tests.chaos.history import Submission
from tests.chaos.runner.client import RecordingClient
from tests.chaos.runner.fleet import ChaosFleet
from tests.chaos.runner.outside import plan_message, steer_message

Json = dict[str, Any]

AGENT = "chaos"
_PERIOD_S = 2
_POLL_S = 0.2

_FIRED = "SELECT 1 FROM trigger_firings WHERE trigger_id = $1 AND scheduled_for > to_timestamp($2) LIMIT 1"


@dataclass(frozen=True)
class Pace:
    """How much clients do.

    Attributes:
        conversations: At the same time.
        open_runs: Most of one conversation.
        gap_s: Mean time between two messages of one conversation.
        door_gap_s: Likewise of a client of a door.
        guest_gaps: Factor of the times between what the second tenant does.
        has_poison: Whether it sends runs that end their process.
    """

    conversations: int = 6
    open_runs: int = 3
    gap_s: float = 1.5
    runs_per_thread: int = 8
    door_gap_s: float = 3.0
    guest_gaps: float = 1.0
    has_poison: bool = True


class Workload:
    """Runs conversations until `stop`."""

    def __init__(self, fleet: ChaosFleet, client: RecordingClient, rng: random.Random, pace: Pace) -> None:
        self._fleet = fleet
        self._client = client
        self._rng = rng
        self._pace = pace
        self._numbers = itertools.count(1)
        self._stopping = asyncio.Event()
        self._conversations: list[asyncio.Task[None]] = []
        self._followers: set[asyncio.Task[Json]] = set()
        self._trigger: str | None = None

    async def start(self) -> None:
        """Make the agent, a webhook and a trigger, and begin conversations."""
        await self._create("/v1/agents", _agent(self._fleet.tool_url))
        await self._create("/v1/webhooks", {"url": self._fleet.hook_url, "kinds": ["run_completed"]})
        trigger = await self._create("/v1/triggers", _trigger())
        self._trigger = trigger["id"]
        self._conversations = [
            asyncio.create_task(self._converse(f"c{number}")) for number in range(self._pace.conversations)
        ]

    async def stop(self, healed_at: float, timeout_s: float) -> None:
        """Send nothing new, and wait for an occurrence after the last fault and for followers, each for a time."""
        self._stopping.set()
        await self._until_fired(healed_at, timeout_s)
        stopping = asyncio.create_task(self._disable_trigger())
        ended, _ = await asyncio.wait((stopping, *self._conversations), timeout=timeout_s)
        for task in ended:
            task.result()
        waiting = self._followers
        if waiting:
            _, waiting = await asyncio.wait(self._followers, timeout=timeout_s)
        for task in (*waiting, stopping, *self._conversations):
            task.cancel()

    async def _until_fired(self, since: float, timeout_s: float) -> None:
        """Wait until the trigger has an occurrence that is later than a time; the checker reports one that has not."""
        ends_at = time.monotonic() + timeout_s
        while time.monotonic() < ends_at and not await self._fleet.sql(_FIRED, self._trigger, since):  # noqa: ASYNC110 - rows, no event
            await asyncio.sleep(_POLL_S)

    async def _disable_trigger(self) -> None:
        await self._client.request("PATCH", f"/v1/triggers/{self._trigger}", {"enabled": False})

    async def _create(self, path: str, body: Json) -> Json:
        made = await self._client.request("POST", path, body)
        assert made is not None, f"{path} was refused"
        return made

    async def _converse(self, name: str) -> None:
        """Send messages to one thread after the other."""
        thread: str | None = None
        sent = 0
        followed: list[asyncio.Task[Json]] = []
        while not self._stopping.is_set():
            if sent >= self._pace.runs_per_thread:
                thread, sent = None, 0
            run = await self._send(name, thread)
            if run is None:
                thread = None
                continue
            thread, sent = run["thread_id"], sent + 1
            followed = [task for task in followed if not task.done()]
            followed.append(self._follow(run["id"]))
            if self._rng.random() < 0.15:
                await self._client.request("GET", f"/v1/runs/{run['id']}")
            if self._rng.random() < 0.05:
                await self._client.request("POST", f"/v1/runs/{run['id']}/cancel")
            if len(followed) >= self._pace.open_runs:
                await self._unless_stopping(followed)
            await self._sleep(self._rng.expovariate(1 / self._pace.gap_s))

    async def _send(self, client: str, thread: str | None) -> Json | None:
        """Send a plan or a steering message, perhaps as an interrupt."""
        number = next(self._numbers)
        key, name = f"{client}-{number}", f"{client}n{number}"
        chance = self._rng.random()
        if thread is not None and chance < 0.25:
            submission = Submission(0.0, key, client, "steer", name, "steer", thread, work_s=1.0)
            return await self._client.submit(submission, {"message": steer_message(name), "on_busy": "steer"})
        on_busy = "interrupt" if thread is not None and chance < 0.30 else "enqueue"
        steps = self._plan()
        work_s = sum(step["words"] / 5 * step["pace_s"] + step.get("tool_s", 0) + 1 for step in steps)
        words = [step["words"] for step in steps]
        submission = Submission(0.0, key, client, "plan", name, on_busy, thread, work_s=work_s, words=words)
        body: Json = {"message": plan_message(name, steps), "on_busy": on_busy}
        return await self._client.submit(submission, body if thread else {**body, "agent_id": AGENT})

    def _plan(self) -> list[Json]:
        """Return some steps with a tool, some of which ask a person, and one without."""
        steps: list[Json] = [
            {
                "words": self._rng.choice((5, 20, 60)),
                "pace_s": self._rng.choice((0.0, 0.02, 0.1)),
                "tool": True,
                "asks": self._rng.random() < 0.15,
                "tool_s": self._rng.choice((0.0, 0.1, 1.0)),
            }
            for _ in range(self._rng.choice((0, 1, 1, 2, 3)))
        ]
        return [*steps, {"words": self._rng.choice((10, 40)), "pace_s": 0.05}]

    def _follow(self, run: str) -> asyncio.Task[Json]:
        follower = f"f{len(self._followers)}-{run}"
        task = asyncio.create_task(self._client.follow(follower, run), name=follower)
        self._followers.add(task)
        task.add_done_callback(self._followers.discard)
        return task

    async def _unless_stopping(self, tasks: list[asyncio.Task[Json]]) -> None:
        """Wait for the first of these tasks, or until the workload stops."""
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait((*tasks, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass


def _agent(tool_url: str) -> Json:
    server = {"type": "http", "url": tool_url}
    return {
        "id": AGENT,
        "name": "Chaos",
        "engine": "anthropic",
        "trust": "sandbox",
        "capabilities": {"user": {}, "mcp": {"config": {"servers": {"outside": server}}}},
        "permissions": {"approvals": [{"tool": "mcp__*", "decision": "always"}]},
    }


def _trigger() -> Json:
    return {
        "agent_id": AGENT,
        "kind": "cron",
        "schedule": f"* * * * * */{_PERIOD_S}",
        "title": f"every {_PERIOD_S} s",
        "prompt": "An occurrence.",
        "overlap": "queue",
        "catchup": "each",
        "pause_after_failures": 0,
    }
