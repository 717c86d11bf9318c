"""How many connections each kind of process holds under load, beside the numbers of docs/operations.md."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from pathlib import Path

import pytest
from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.contracts.http.wire import StatelessRunCreate
from nova_workers.ledger.database import Database
from tests.requirements import proves
from tests.support.processes.fleet import Fleet, fleet_env

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
_ROW = re.compile(r"^\| (API|worker|beat) \| (\d+)[^|]*\| (\d+)[^|]*\|", re.MULTILINE)
_SESSIONS = """
SELECT split_part(application_name, ' ', 1) AS name, pid FROM pg_stat_activity
 WHERE datname = current_database() AND backend_type = 'client backend'
"""
_LOOK_EVERY_S = 0.05
_HELD_S = 0.5
"""How long a session must be listed to count. One that its process has closed, and replaced by another, is listed until
the server has ended it, which takes a moment on a busy machine."""
_TURNS = 80
"""At once: more than either process has connections."""
_MESSAGE = json.dumps(
    {"script": [{"tool": {"name": "note_list", "input": {}}}, {"sleep_s": 0.3}, {"say": "No notes."}]}
)


def _documented() -> dict[str, tuple[int, int]]:
    """Return the most connections to Postgres and to Redis that the page states, by the name of connections."""
    rows = _ROW.findall(_PAGE.read_text("utf-8"))
    return {f"nova-{process.lower()}": (int(postgres), int(redis)) for process, postgres, redis in rows}


async def _sessions(database: Database) -> set[tuple[str, int]]:
    """Return the name and the server's process of each session of this database."""
    return {(row["name"], row["pid"]) for row in await database.fetch(_SESSIONS)}


@proves("processes.connections")
@pytest.mark.fleet
async def test_under_load_no_process_holds_more_connections_than_documented(
    settings: Settings, database: Database, redis: Redis
) -> None:
    documented = _documented()
    assert set(documented) == {"nova-api", "nova-worker", "nova-beat"}
    others = {client["id"] for client in await redis.client_list()}
    # Sessions that earlier tests of this process left under names of the fleet (`tests/support/harness/warm_sessions`).
    warm = await _sessions(database)
    most: dict[str, tuple[int, int]] = dict.fromkeys(documented, (0, 0))

    since_s: dict[tuple[str, int], float] = {}

    async def count() -> None:
        nonlocal since_s
        now_s = time.monotonic()
        listed = await _sessions(database) - warm
        since_s = {session: since_s.get(session, now_s) for session in listed}
        sessions = Counter(name for (name, _), first_s in since_s.items() if now_s - first_s >= _HELD_S)
        clients = Counter(each["name"] for each in await redis.client_list() if each["id"] not in others)
        for name, (postgres, of_redis) in most.items():
            most[name] = max(postgres, sessions[name]), max(of_redis, clients[name])

    async with Fleet(fleet_env(settings), beat=True, concurrency=_TURNS) as fleet:
        turns = asyncio.gather(*(fleet.client.runs.wait(StatelessRunCreate(message=_MESSAGE)) for _ in range(_TURNS)))
        while not turns.done():
            await asyncio.wait({turns}, timeout=_LOOK_EVERY_S)
            await count()
        assert {run.status for run in await turns} == {"succeeded"}
        ended_s = time.monotonic()
        while time.monotonic() < ended_s + 2 * _HELD_S:
            await count()

    for name, (postgres, of_redis) in documented.items():
        assert (most[name][0] <= postgres, most[name][1] <= of_redis) == (True, True), (name, most[name])
        # They are found by these names. How many are needed at once depends on how fast the machine is: a second turn
        # uses the connection of the first if that has returned it.
        assert (most[name][0] > 0, most[name][1] > 0) == (postgres > 0, of_redis > 0), (name, most[name])
    # What is documented for a fleet is the sum of its processes.
    for of_api, of_worker in zip(documented["nova-api"], documented["nova-worker"], strict=True):
        assert f"`{of_api}a + {of_worker}w`" in _PAGE.read_text("utf-8")
