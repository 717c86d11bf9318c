"""Connections and background tasks of API and worker processes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff

from nova_workers.config import Settings
from nova_workers.ledger.database import Access, Database
from nova_workers.stopping import stop_tasks

__all__ = ["Background", "connect_database", "connect_redis"]

_REDIS_CONNECTIONS = 32
_REDIS_WAIT_S = 5.0
_RESERVED_SHARE = 4
"""A quarter of the API's pool is for what sees all tenants: the check of keys, health, operators."""


@dataclass
class Background:
    """Tasks that run as long as their process."""

    tasks: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])

    def start(self, **coroutines: Coroutine[Any, Any, None]) -> None:
        """Start each under its name."""
        self.tasks += [asyncio.create_task(coroutine, name=name) for name, coroutine in coroutines.items()]

    async def stop(self) -> None:
        """Cancel all and wait for their end."""
        await stop_tasks(self.tasks)


def connect_database(settings: Settings, access: Access, *, per_tenant: int | None = None) -> Database:
    """Return the process's pool. It connects at first use."""
    size = settings.database_pool
    return Database(
        settings.require_database_url(),
        pool_size=size,
        access=access,
        reserved=size // _RESERVED_SHARE,
        per_tenant=per_tenant,
    )


def connect_redis(settings: Settings) -> Redis:
    """Return the process's client. It connects at first use."""
    url = settings.require_redis_url()
    tcp: dict[str, Any] = {} if url.startswith("unix:") else {"socket_keepalive": True}
    # Bounded: a caller waits for a free connection, instead of one more being opened for each follower.
    pool = BlockingConnectionPool.from_url(
        url,
        **tcp,
        max_connections=_REDIS_CONNECTIONS,
        timeout=_REDIS_WAIT_S,
        socket_timeout=5,
        socket_connect_timeout=2,
        health_check_interval=15,
        retry=Retry(ExponentialBackoff(cap=0.5, base=0.05), 2),
    )
    return Redis.from_pool(pool)
