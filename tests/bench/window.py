"""A window of steady load on a fleet: its turns, and what they took of the cores, Redis, Postgres and connections."""

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

from nova_workers.ledger.database import Database
from tests.bench.machine import CpuMeter

_LOOK_EVERY_S = 0.5
_SESSIONS = """
SELECT split_part(application_name, ' ', 1) AS name, count(*) AS sessions FROM pg_stat_activity
 WHERE datname = current_database() AND backend_type = 'client backend' GROUP BY 1
"""
_TRANSACTIONS = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
_OWN_COMMANDS = ("client|list", "client|setname", "client|setinfo", "info", "hello")
"""Our own reading, and what a new connection sends."""


@dataclass(frozen=True, slots=True)
class _Counts:
    at_s: float
    commands: Mapping[str, int]
    transactions: int


@dataclass(frozen=True, slots=True)
class Idle:
    """What a fleet does each second without a run.

    Attributes:
        commands: Of Redis, those in scripts included.
        doorbells: Messages of Celery: ticks.
        transactions: Of Postgres.
    """

    commands: float
    doorbells: float
    transactions: float


@dataclass(frozen=True, slots=True)
class Window:
    """What happened while every client kept a turn open.

    Attributes:
        turns: That ended in the window.
        latencies_s: What each of these measured, as its client returned it.
        cores: Cores that each part of the fleet kept busy.
        others: Cores that kept busy what is no part of the bench.
        commands: Of Redis a turn, by name, beyond those of the idle fleet.
        doorbells: A turn, beyond ticks.
        transactions: Of Postgres a turn, beyond those of the idle fleet.
        connections: Most to Postgres and to Redis, by the name of the process.
    """

    turns: int
    wall_s: float
    latencies_s: Sequence[float]
    cores: Mapping[str, float]
    others: float
    commands: Mapping[str, float]
    doorbells: float
    transactions: float
    connections: Mapping[str, tuple[int, int]]

    @property
    def per_s(self) -> float:
        """Turns a second."""
        return self.turns / self.wall_s

    @property
    def idle_cores(self) -> float:
        """Cores of the machine that had nothing to do."""
        return max(0.0, (os.cpu_count() or 1) - sum(self.cores.values()) - self.others)


class Gauge:
    """Reads the counters of both servers."""

    def __init__(self, database: Database, redis: Redis) -> None:
        self._database = database
        self._redis = redis

    @classmethod
    @asynccontextmanager
    async def on(cls, database: Database, redis_url: str) -> AsyncGenerator["Gauge"]:
        """Lend one with a connection of its own to Redis."""
        client = Redis.from_url(redis_url)
        try:
            yield cls(database, client)
        finally:
            await client.aclose()

    async def idle(self, seconds: float) -> Idle:
        """Watch a fleet without runs."""
        before = await self._read()
        await asyncio.sleep(seconds)
        after = await self._read()
        took_s = after.at_s - before.at_s
        commands = _more(after, before)
        return Idle(
            sum(commands.values()) / took_s,
            commands["lpush"] / took_s,
            (after.transactions - before.transactions) / took_s,
        )

    async def under_load(
        self,
        cycles: Sequence[Callable[[], Awaitable[float]]],
        meter: CpuMeter,
        idle: Idle,
        *,
        cycle_s: float,
        window_s: float,
    ) -> Window:
        """Keep every client busy, and measure after each has had a turn.

        Clients begin at even intervals: if all began at once, their turns would also end at once, and the cores would
        be the limit at these moments.

        Args:
            cycles: For each client what it repeats, returning a latency.
            meter: Of the fleet's processes.
            idle: Of the same fleet.
            cycle_s: About how long a cycle takes.
            window_s: How long to measure.
        """
        ended: list[tuple[float, float]] = []
        is_over = asyncio.Event()

        async def client(number: int, cycle: Callable[[], Awaitable[float]]) -> None:
            await asyncio.sleep(cycle_s * number / len(cycles))
            while not is_over.is_set():
                latency_s = await cycle()
                ended.append((time.perf_counter(), latency_s))

        async with asyncio.TaskGroup() as group:
            for number, cycle in enumerate(cycles):
                group.create_task(client(number, cycle))
            await asyncio.sleep(2 * cycle_s)
            with meter:
                before = await self._read()
                connections = await self._connections_for(window_s)
                after = await self._read()
            is_over.set()
        latencies_s = [latency_s for at_s, latency_s in ended if before.at_s <= at_s < after.at_s]
        turns, wall_s = len(latencies_s), after.at_s - before.at_s
        assert turns, f"no turn ended within {wall_s:.1f} s"
        commands = _more(after, before)
        return Window(
            turns=turns,
            wall_s=wall_s,
            latencies_s=latencies_s,
            cores={name: used_s / meter.wall_s for name, used_s in meter.used_s.items()},
            others=meter.others_s / meter.wall_s,
            commands={name: calls / turns for name, calls in commands.most_common()}
            | {"all": (commands.total() - idle.commands * wall_s) / turns},
            doorbells=(commands["lpush"] - idle.doorbells * wall_s) / turns,
            transactions=(after.transactions - before.transactions - idle.transactions * wall_s) / turns,
            connections=connections,
        )

    async def _connections_for(self, seconds: float) -> dict[str, tuple[int, int]]:
        most: dict[str, tuple[int, int]] = {}
        until_s = time.perf_counter() + seconds
        while (left_s := until_s - time.perf_counter()) > 0:
            await asyncio.sleep(min(left_s, _LOOK_EVERY_S))
            sessions = {row["name"]: row["sessions"] for row in await self._database.fetch(_SESSIONS)}
            clients = Counter(each["name"] for each in await self._redis.client_list())
            for name in ("nova-api", "nova-worker", "nova-beat"):
                postgres, redis = most.get(name, (0, 0))
                most[name] = max(postgres, sessions.get(name, 0)), max(redis, clients[name])
        return most

    async def _read(self) -> _Counts:
        transactions = int(await self._database.fetchval(_TRANSACTIONS))
        stats: Mapping[str, Any] = await self._redis.info("commandstats")
        commands = {name.removeprefix("cmdstat_"): int(each["calls"]) for name, each in stats.items()}
        return _Counts(time.perf_counter(), commands, transactions)


def _more(after: _Counts, before: _Counts) -> Counter[str]:
    return Counter(
        {
            name: calls - before.commands.get(name, 0)
            for name, calls in after.commands.items()
            if name not in _OWN_COMMANDS
        }
    )
