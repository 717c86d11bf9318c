"""Postgres dies, crashes, hangs, is full, or takes no writes; links to it are slow, lossy or dead."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress

import asyncpg

from tests.chaos.runner.scenarios.links import block_answers, forget, lose_answers, lossy, slow
from tests.chaos.runner.scenarios.registry import Stage, scenario

_LEDGER = ("I1", "I3", "I4", "I7", "I9")


@scenario("postgres", proves=_LEDGER)
async def kill_postgres(stage: Stage) -> None:
    """Immediate stop of Postgres (SIGQUIT), which comes back after some seconds and replays its log."""
    postgres = stage.fleet.servers.postgres
    postgres.send_signal(signal.SIGQUIT)
    await postgres.stop()
    try:
        await stage.hold(0.5, 5)
    finally:
        await postgres.start()


@scenario("postgres", proves=_LEDGER)
async def crash_postgres_backend(stage: Stage) -> None:
    """SIGKILL to one backend: Postgres ends every session, and recovers by itself."""
    pids = await _backends(stage)
    if pids:
        with suppress(ProcessLookupError):
            os.kill(stage.rng.choice(pids), signal.SIGKILL)
    await _until_it_answers(stage)


@scenario("postgres", proves=_LEDGER)
async def terminate_connections(stage: Stage) -> None:
    """pg_terminate_backend of every session, some times in a row."""
    for _ in range(stage.rng.choice((1, 3))):
        await stage.fleet.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        await stage.hold(0.1, 1)


@scenario("postgres", proves=_LEDGER)
async def freeze_postgres(stage: Stage) -> None:
    """SIGSTOP to every process of Postgres: connections stay open, and nothing answers."""
    stage.fleet.servers.postgres.freeze()
    try:
        await stage.hold(2, 1.2 * stage.lease_s)
    finally:
        stage.fleet.servers.postgres.thaw()


@scenario("postgres", proves=_LEDGER)
async def read_only_postgres(stage: Stage) -> None:
    """Postgres refuses writes (25006), as a standby during a failover."""
    await _configure(stage, "ALTER SYSTEM SET default_transaction_read_only = on")
    try:
        await stage.hold(2, 6)
    finally:
        await _configure(stage, "ALTER SYSTEM RESET default_transaction_read_only")


@scenario("postgres", proves=_LEDGER, is_brief=False)
async def postgres_disk_full(stage: Stage) -> None:
    """No block of Postgres's disk is free: it refuses writes, or stops and recovers. Needs root and Linux."""
    disk = stage.fleet.disk
    if disk is None:
        stage.say("left out: only root can mount a disk of its own")
        return
    disk.fill()
    try:
        await stage.hold(2, 8)
    finally:
        disk.free()
        if not stage.fleet.servers.postgres.is_up:
            stage.say("Postgres stopped")
            await stage.fleet.servers.postgres.stop()
            await stage.fleet.servers.postgres.start()
        await _until_it_answers(stage)


@scenario("postgres", proves=_LEDGER)
async def slow_postgres_links(stage: Stage) -> None:
    """Each request to Postgres takes up to half a second longer."""
    await slow(stage, "postgres", 0.02, 0.25)


@scenario("postgres", proves=_LEDGER)
async def lossy_postgres_links(stage: Stage) -> None:
    """Connections to Postgres are reset again and again."""
    await lossy(stage, "postgres")


@scenario("postgres", proves=_LEDGER)
async def forget_postgres_connections(stage: Stage) -> None:
    """A firewall forgets every open connection to Postgres: they stay open, and nothing arrives."""
    await forget(stage, "postgres")


@scenario("postgres", proves=_LEDGER)
async def block_postgres_answers(stage: Stage) -> None:
    """Statements are executed, and their answers do not arrive at one process."""
    await block_answers(stage, "postgres")


@scenario("postgres", proves=_LEDGER)
async def lose_commits(stage: Stage) -> None:
    """Statements are committed, and their connection is reset before the answer."""
    await lose_answers(stage, "postgres")


async def _backends(stage: Stage) -> list[int]:
    rows = await stage.fleet.sql(
        "SELECT pid FROM pg_stat_activity"
        " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' ORDER BY pid"
    )
    return [row["pid"] for row in rows]


async def _configure(stage: Stage, statement: str) -> None:
    await stage.fleet.sql(statement)
    await stage.fleet.sql("SELECT pg_reload_conf()")


async def _until_it_answers(stage: Stage, timeout_s: float = 30) -> None:
    async with asyncio.timeout(timeout_s):
        while True:
            with suppress(OSError, asyncpg.PostgresError, TimeoutError):
                await stage.fleet.sql("SELECT 1")
                return
            await asyncio.sleep(0.1)
