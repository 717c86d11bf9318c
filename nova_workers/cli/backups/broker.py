"""Empties the Redis of a restored fleet: events and locks there are of runs that went on after the backup."""

from __future__ import annotations

import shutil
from pathlib import Path

from redis.asyncio import Redis
from redis.exceptions import RedisError

from nova_workers.config import Settings
from nova_workers.errors import Conflict, Unavailable
from nova_workers.keys import BROKER_KEY_PREFIX, worker_presence, workers_index

__all__ = ["empty_broker", "refuse_live_workers"]

_AT_ONCE = 1_000
_TIMEOUT_S = 5.0


async def refuse_live_workers(settings: Settings) -> None:
    """Refuse a Redis that workers use: they would get the doorbells of both fleets.

    Raises:
        Conflict: Workers are alive there.
        Unavailable: It cannot be reached.
    """
    if settings.redis_url is None:
        return
    redis = _connect(settings.redis_url.get_secret_value())
    try:
        names = await redis.zrange(workers_index(), 0, -1)
        alive = [name for name in map(str, names) if await redis.exists(worker_presence(name))]
    except (RedisError, OSError) as error:
        raise _unavailable(error) from error
    finally:
        await redis.aclose()
    if alive:
        raise Conflict(
            f"Workers are alive on NOVA_REDIS_URL ({len(alive)}): a restored fleet needs a Redis of its own. Stop "
            "them, or give another database of Redis."
        )


async def empty_broker(settings: Settings, *, embedded: bool) -> None:
    """Delete all keys of a fleet.

    Args:
        settings: Name the Redis; without one it is the embedded one.
        embedded: Whether NOVA_HOME is locked, so that its Valkey does not run.

    Raises:
        Unavailable: It cannot be reached.
    """
    if settings.redis_url is None:
        if embedded:
            shutil.rmtree(_data(settings.home), ignore_errors=True)
        return
    redis = _connect(settings.redis_url.get_secret_value())
    try:
        keys: list[str] = []
        async for key in redis.scan_iter(match=f"{BROKER_KEY_PREFIX}*", count=_AT_ONCE):
            keys.append(str(key))
            if len(keys) == _AT_ONCE:
                await redis.unlink(*keys)
                keys.clear()
        if keys:
            await redis.unlink(*keys)
    except (RedisError, OSError) as error:
        raise _unavailable(error) from error
    finally:
        await redis.aclose()


def _connect(url: str) -> Redis:
    return Redis.from_url(url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S, decode_responses=True)


def _data(home: Path) -> Path:
    """Return the folder in which the embedded Valkey keeps what it holds."""
    return home / "valkey" / "appendonlydir"


def _unavailable(error: Exception) -> Unavailable:
    return Unavailable(f"Redis did not answer ({error}). Check NOVA_REDIS_URL.", server="redis")
