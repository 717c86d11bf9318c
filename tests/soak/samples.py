"""Reads what a fleet uses: memory and open files by process, connections, keys, tables."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import asyncpg
from redis.asyncio import Redis

from nova_workers.ledger.named_sql import bind
from tests.bench.installed import PROCESSES
from tests.soak.series import Series
from tests.support.processes.inspection import command_lines, descendants

_PROC = Path("/proc")
_TABLES = ("runs", "threads", "effects", "turns", "messages", "embeddings")
_LEAST_ROWS = 1_000
"""Of a table that is judged: in a small one a single vacuum is everything."""
_EVENTS = "run events"

# The latest statistics of tables: a session keeps what it read first, and so each sample has a session of its own.
_TABLE_SIZES = """
SELECT relname, n_live_tup AS live, n_dead_tup AS dead, pg_total_relation_size(relid) AS bytes
  FROM pg_stat_user_tables WHERE relname = ANY (:tables)
"""
_BACKLOG = "SELECT count(*) FROM effects WHERE status IN ('pending', 'running')"
_CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"

_MEMORY_FLOOR_MB = {"postgres": 24.0}
"""A process a connection, each with caches of tables and plans. Other processes:"""
_MEMORY_FLOOR_EACH_MB = 6.0
_FILES_FLOOR = {"postgres": 400.0}
"""Each session of Postgres keeps files of tables open, up to a thousand. Other processes:"""
_FILES_FLOOR_EACH = 8.0
_CONNECTIONS_FLOOR = 4.0
_KEYS_FLOOR = 40.0
_DEAD_FLOOR = 0.15
"""Share of a table that is dead rows. Autovacuum of the embedded Postgres begins at a twentieth, every 15 s."""
_BACKLOG_FLOOR = 100.0
_SIZE_FLOOR = {"embeddings": 400.0}
"""Their index (HNSW) takes more a row the more rows there are: a soak saw 2,618 bytes with 1,164 rows, and 3,217 with
77,078. Other tables:"""
_SIZE_FLOOR_EACH = 200.0


class Sampler:
    """Samples a stack that `nova up` runs.

    Args:
        pid: Of `nova up`.
        database_url: Of its Postgres.
        redis_url: Of its Valkey.
    """

    def __init__(self, pid: int, database_url: str, redis_url: str) -> None:
        self._pid = pid
        self._database_url = database_url
        self._redis = Redis.from_url(redis_url, decode_responses=True)
        self._began_s = time.monotonic()
        self.series: dict[str, Series] = {}

    @property
    def elapsed_s(self) -> float:
        """Seconds since the first sample could be taken."""
        return time.monotonic() - self._began_s

    async def close(self) -> None:
        """Close its connections."""
        await self._redis.aclose()

    async def sample(self) -> None:
        """Take one sample of everything."""
        at_s = self.elapsed_s
        self._processes(at_s)
        await self._postgres(at_s)
        await self._valkey(at_s)

    def add(self, at_s: float, name: str, value: float, *, unit: str, floor: float, judged: bool = True) -> None:
        """Add a sample to a series."""
        self.series.setdefault(name, Series(name, unit, floor, judged)).add(at_s, value)

    def _processes(self, at_s: float) -> None:
        memory, files = Counter[str](), Counter[str]()
        lines = {self._pid: "nova up"} | command_lines(descendants(self._pid))
        for pid in lines:
            role = "nova up" if pid == self._pid else _role(pid, lines)
            try:
                memory[role] += _private_bytes(pid)
                files[role] += len(os.listdir(_PROC / str(pid) / "fd"))
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue  # It has ended.
        for role in sorted(memory):
            floor_mb = _MEMORY_FLOOR_MB.get(role, _MEMORY_FLOOR_EACH_MB)
            # Live events stay for an hour: Valkey's memory is judged by run.
            judged = role != "valkey"
            self.add(at_s, f"memory of {role}", memory[role] / 1e6, unit="MB", floor=floor_mb, judged=judged)
            most = _FILES_FLOOR.get(role, _FILES_FLOOR_EACH)
            self.add(at_s, f"open files of {role}", files[role], unit="", floor=most)

    async def _postgres(self, at_s: float) -> None:
        connection = await asyncpg.connect(self._database_url)
        try:
            number = await connection.fetchval(_CONNECTIONS)
            backlog = await connection.fetchval(_BACKLOG)
            statement, values = bind(_TABLE_SIZES, {"tables": list(_TABLES)})
            tables = await connection.fetch(statement, *values)
        finally:
            await connection.close()
        self.add(at_s, "connections to postgres", float(number or 0), unit="", floor=_CONNECTIONS_FLOOR)
        self.add(at_s, "effects that are due", float(backlog or 0), unit="", floor=_BACKLOG_FLOOR)
        for row in tables:
            live, dead, size = int(row["live"]), int(row["dead"]), int(row["bytes"])
            if live < _LEAST_ROWS:
                continue
            name = row["relname"]
            self.add(at_s, f"dead rows of {name}", dead / (live + dead), unit="of all", floor=_DEAD_FLOOR)
            floor = _SIZE_FLOOR.get(name, _SIZE_FLOOR_EACH)
            self.add(at_s, f"size of {name}", size / live, unit="bytes a row", floor=floor)
            self.add(at_s, f"rows of {name}", live, unit="", floor=0.0, judged=False)

    async def _valkey(self, at_s: float) -> None:
        kinds = Counter[str]()
        async for key in self._redis.scan_iter(count=1_000):
            parts = str(key).split(":")
            kinds[_EVENTS if parts[:2] == ["nova", "run"] else "other"] += 1
        used = float((await self._redis.info("memory"))["used_memory"])
        self.add(at_s, "redis keys beside run events", kinds["other"], unit="", floor=_KEYS_FLOOR)
        # They live for an hour after their run: their number grows for the first hour of any load.
        self.add(at_s, "redis keys of run events", kinds[_EVENTS], unit="", floor=0.0, judged=False)
        self.add(at_s, "redis memory", used / 1e6, unit="MB", floor=0.0, judged=False)
        per_run = used / max(kinds[_EVENTS], 1)
        self.add(at_s, "redis memory a run with events", per_run, unit="bytes", floor=500.0)


def _role(pid: int, lines: dict[int, str]) -> str:
    """Return the role of a process: by its command line, else by that of its nearest ancestor that has one."""
    while pid in lines:
        found = next((role for role, part in PROCESSES.items() if part in lines[pid]), None)
        if found is not None:
            return found
        pid = _parent(pid)
    return "other"


def _parent(pid: int) -> int:
    try:
        return int((_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _private_bytes(pid: int) -> int:
    """Return the memory that ends with a process: what it shares, such as Postgres' buffers, is not counted."""
    found = 0
    for line in (_PROC / str(pid) / "smaps_rollup").read_text().splitlines():
        if line.startswith(("Private_Clean:", "Private_Dirty:")):
            found += int(line.split()[1]) * 1024
    return found
