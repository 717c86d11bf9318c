"""Empties the Redis of a restored fleet: events and locks there are of runs that went on after the backup."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path

from redis.asyncio import Redis
from redis.exceptions import RedisError

from nova_workers.base.config import Settings
from nova_workers.base.errors import ConfigurationError, Conflict, Unavailable
from nova_workers.base.keys import BROKER_KEY_PREFIX, worker_presence, workers_index
from nova_workers.devstack.home import lock_home

EmptyRedis = Callable[[], Awaitable[None]]
"""Deletes all keys of a fleet."""

_AT_ONCE = 1_000
_TIMEOUT_S = 5.0


@asynccontextmanager
async def unused_redis(settings: Settings, *, home_is_locked: bool) -> AsyncGenerator[EmptyRedis]:
    """Refuse a Redis that a fleet uses, since it would get the doorbells of both fleets; give what empties it.

    Without a URL it is that of NOVA_HOME, which does not run before the block ends: the home is locked.

    Args:
        settings: Name the Redis.
        home_is_locked: Whether this process holds the lock of NOVA_HOME already.

    Raises:
        AlreadyRunning: A fleet runs on NOVA_HOME, and so does its Redis.
        Conflict: Workers are alive there.
        Unavailable: It cannot be reached.
    """
    if settings.redis_url is None:
        with nullcontext() if home_is_locked else lock_home(settings.home):
            yield partial(_remove_data, settings.home)
        return
    url = settings.redis_url.get_secret_value()
    await _refuse_live_workers(url)
    yield partial(_delete_keys, url)


async def _refuse_live_workers(url: str) -> None:
    redis = _connect(url)
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


async def _delete_keys(url: str) -> None:
    redis = _connect(url)
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


async def _remove_data(home: Path) -> None:
    """Remove the folder in which the embedded Valkey keeps its keys."""
    folder = home / "valkey" / "appendonlydir"
    try:
        await asyncio.to_thread(shutil.rmtree, folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigurationError(
            f"{str(folder)!r}, the data of the fleet's Valkey, cannot be removed ({error.strerror}). Remove it before "
            "a fleet starts."
        ) from error


def _connect(url: str) -> Redis:
    return Redis.from_url(url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S, decode_responses=True)


def _unavailable(error: Exception) -> Unavailable:
    return Unavailable(f"Redis did not answer ({error}). Check NOVA_REDIS_URL.", server="redis")
