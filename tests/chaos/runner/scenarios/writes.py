"""A worker dies at a chosen write of the protocol: before its commit, or after the commit and before its answer.

A database trigger holds the writing transaction at an advisory lock. Then the workers are killed, and either the
session is ended too, so that nothing was written, or the lock is released, so that all was written and no process has
the answer. What a single statement of one process does then is tested with injected faults in tests/integration; this
is the same with real processes, at every table that the protocol writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

import asyncpg

from tests.chaos.runner.scenarios.registry import PATIENCE_S, Stage, scenario

_LOCK = 7_700
_WAIT_S = 8.0
_LONG_WAIT_S = 20.0
"""For a write that must be held: requeues follow a lost worker, and the worker that writes them has to start."""
_TRIES = 2
"""What the first one kills makes the second one's requeues."""


@dataclass(frozen=True)
class Write:
    """A write of the protocol: the event of a trigger, and which rows it holds."""

    name: str
    event: str
    table: str
    when: str = ""


WRITES = (
    Write("submit", "INSERT", "runs"),
    Write("claim", "UPDATE", "runs", "OLD.status = 'queued' AND NEW.status = 'running'"),
    Write("calls", "INSERT", "tool_calls"),
    Write("result", "UPDATE", "tool_calls", "NEW.status = 'completed'"),
    Write("step", "UPDATE", "turns", "NEW.steps > OLD.steps AND NEW.status = 'running'"),
    Write("steering", "UPDATE", "runs", "NEW.status = 'merged'"),
    Write("finish", "UPDATE", "runs", "NEW.status IN ('succeeded', 'failed', 'canceled')"),
    Write("head", "INSERT", "thread_heads"),
    Write("usage", "INSERT", "usage"),
    Write("requeue", "INSERT", "run_attempts"),
    Write("effect", "UPDATE", "effects", "NEW.status = 'done'"),
    Write("embedding", "INSERT", "embeddings"),
    Write("delivery", "INSERT", "deliveries"),
    Write("delivered", "UPDATE", "deliveries", "NEW.status = 'delivered'"),
    Write("firing", "INSERT", "trigger_firings"),
)

_FUNCTION = f"""
CREATE OR REPLACE FUNCTION chaos_hold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared({_LOCK});
    RETURN NULL;
END $$
"""
_END_HOLDERS = """
SELECT pg_terminate_backend(l.pid) FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
 WHERE l.relation = $1::text::regclass AND l.granted AND l.pid <> pg_backend_pid() AND a.wait_event = 'ClientRead'
"""
_HELD = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = $1 AND NOT granted"


@scenario("workers", "apis", "postgres", proves=("I1", "I2", "I3", "I5", "I6", "I7"))
async def kill_at_a_write(stage: Stage) -> None:
    """SIGKILL to the workers (at a submission the APIs) in the middle of one write of the protocol."""
    await _kill_at(stage, stage.rng.choice(WRITES), commits=stage.rng.random() < 0.5, wait_s=_WAIT_S)


@scenario("workers", "apis", "postgres", proves=("I1", "I2", "I3", "I5", "I6", "I7"), in_mix=False, is_brief=False)
async def kill_at_every_write(stage: Stage) -> None:
    """SIGKILL to the workers (or APIs) at each write of the protocol, before and after its commit."""
    await kill_at_each(stage, WRITES, _LONG_WAIT_S)


async def kill_at_each(stage: Stage, writes: Iterable[Write], wait_s: float, *, pause_s: float = 1.5) -> None:
    """Kill the workers (or APIs) at each of these writes, before and after its commit.

    Raises:
        AssertionError: A write was never held, so that nothing was shown about it. The others were all tried.
    """
    never = [
        f"{write.name} {_when(commits)}"
        for write in writes
        for commits in (False, True)
        if not await _held_once(stage, write, commits=commits, wait_s=wait_s, pause_s=pause_s)
    ]
    if never:
        raise AssertionError(f"no process made these writes in {_TRIES} times {wait_s:g} s: {', '.join(never)}")


async def _held_once(stage: Stage, write: Write, *, commits: bool, wait_s: float, pause_s: float) -> bool:
    for _ in range(_TRIES):
        is_held = await _kill_at(stage, write, commits=commits, wait_s=wait_s)
        await stage.hold(pause_s)
        if is_held:
            return True
    return False


def _when(commits: bool) -> str:
    return "after the commit" if commits else "before the commit"


async def _kill_at(stage: Stage, write: Write, *, commits: bool, wait_s: float) -> bool:
    """Kill the processes when one of them makes a write, or after a time; return whether one did."""
    connection = await asyncpg.connect(stage.fleet.servers.database_url, timeout=PATIENCE_S)
    try:
        stage.say(f"{write.name}, {_when(commits)}")
        await connection.execute("SELECT pg_advisory_lock($1)", _LOCK)
        await _hold(connection, write)
        pids = await _until_held(connection, wait_s)
        for member in stage.fleet.of_role("api" if write.name == "submit" else "worker"):
            member.kill()
        if not pids:
            stage.say("nothing wrote")
        if not commits:
            for pid in pids:
                await connection.execute("SELECT pg_terminate_backend($1)", pid)
        return bool(pids)
    finally:
        # The end of the session releases the lock, and the trigger is dropped by the next one.
        await connection.close()
        await _drop(stage, write)


async def _hold(connection: asyncpg.Connection, write: Write) -> None:
    await connection.execute(_FUNCTION)
    when = f"WHEN ({write.when})" if write.when else ""
    create = f"CREATE TRIGGER chaos_hold AFTER {write.event} ON {write.table} FOR EACH ROW {when}"
    await _change(connection, write.table, f"{create} EXECUTE FUNCTION chaos_hold()")


async def _drop(stage: Stage, write: Write) -> None:
    connection = await asyncpg.connect(stage.fleet.servers.database_url, timeout=PATIENCE_S)
    try:
        await _change(connection, write.table, "DROP FUNCTION IF EXISTS chaos_hold() CASCADE")
    finally:
        await connection.close()


async def _change(connection: asyncpg.Connection, table: str, statement: str) -> None:
    """Change a table. Sessions whose clients are gone may hold it: they are ended, so that nothing waits for long."""
    await connection.execute("SET lock_timeout = '2s'")
    while True:
        try:
            await connection.execute(statement)
        except asyncpg.LockNotAvailableError:
            await connection.execute(_END_HOLDERS, table)
        else:
            return


async def _until_held(connection: asyncpg.Connection, wait_s: float) -> list[int]:
    """Return the sessions that wait at the trigger; none if nothing wrote in time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            while not (rows := await connection.fetch(_HELD, _LOCK)):  # noqa: ASYNC110 - rows, no event
                await asyncio.sleep(0.02)
            return [row["pid"] for row in rows]
    return []
