"""Valkey dies, is emptied, hangs, is full, or refuses writes; links to it are slow, lossy or dead."""

from __future__ import annotations

import asyncio

from redis.asyncio import Redis

from tests.chaos.runner.scenarios.links import block_answers, forget, lose_answers, lossy, slow
from tests.chaos.runner.scenarios.registry import PATIENCE_S, Stage, scenario

_WIRE = ("I4", "I7", "I9")


@scenario("redis", proves=_WIRE)
async def kill_valkey(stage: Stage) -> None:
    """SIGKILL to Valkey, which comes back after some seconds with what its log has."""
    await _down(stage, stage.rng.uniform(0.5, 6))


@scenario("redis", proves=_WIRE, in_mix=False, is_brief=False)
async def valkey_down_for_two_minutes(stage: Stage) -> None:
    """Valkey is unavailable for two minutes; what is accepted meanwhile runs afterwards."""
    await _down(stage, 120)


@scenario("redis", proves=("I2", "I4", "I7"))
async def empty_valkey(stage: Stage) -> None:
    """FLUSHALL, some times in a row: locks, queues, streams and presence are gone."""
    for _ in range(stage.rng.choice((1, 1, 3))):
        await _command(stage, "FLUSHALL")
        await stage.hold(0.2, 1)


@scenario("redis", proves=_WIRE)
async def freeze_valkey(stage: Stage) -> None:
    """SIGSTOP to Valkey: connections stay open, and nothing answers."""
    stage.fleet.servers.valkey.freeze()
    try:
        await stage.hold(2, 12)
    finally:
        stage.fleet.servers.valkey.thaw()


@scenario("redis", proves=_WIRE)
async def valkey_out_of_memory(stage: Stage) -> None:
    """Valkey refuses every write that needs memory (OOM)."""
    await _command(stage, "CONFIG", "SET", "maxmemory", "1")
    try:
        await stage.hold(2, 8)
    finally:
        await _command(stage, "CONFIG", "SET", "maxmemory", "0")


@scenario("redis", proves=_WIRE)
async def valkey_read_only(stage: Stage) -> None:
    """Valkey answers writes with READONLY, as a former primary after a failover."""
    await _command(stage, "REPLICAOF", "127.0.0.1", "1")
    try:
        await stage.hold(2, 6)
    finally:
        await _command(stage, "REPLICAOF", "NO", "ONE")


@scenario("redis", proves=_WIRE)
async def slow_redis_links(stage: Stage) -> None:
    """Each request to Valkey takes up to half a second longer."""
    await slow(stage, "redis", 0.05, 0.25)


@scenario("redis", proves=_WIRE)
async def lossy_redis_links(stage: Stage) -> None:
    """Connections to Valkey are reset again and again."""
    await lossy(stage, "redis")


@scenario("redis", proves=_WIRE)
async def forget_redis_connections(stage: Stage) -> None:
    """A firewall forgets every open connection to Valkey: they stay open, and nothing arrives."""
    await forget(stage, "redis")


@scenario("redis", proves=_WIRE)
async def block_redis_answers(stage: Stage) -> None:
    """Requests arrive at Valkey, its answers do not arrive at one process."""
    await block_answers(stage, "redis")


@scenario("redis", proves=_WIRE)
async def lose_redis_answers(stage: Stage) -> None:
    """Single commands are executed, and their connection is reset before the answer."""
    await lose_answers(stage, "redis")


async def _down(stage: Stage, seconds: float) -> None:
    valkey = stage.fleet.servers.valkey
    await valkey.kill()
    try:
        await stage.hold(seconds)
    finally:
        await valkey.start()


async def _command(stage: Stage, *words: str) -> None:
    async with asyncio.timeout(PATIENCE_S), Redis.from_url(stage.fleet.servers.redis_url) as redis:
        await redis.execute_command(*words)
