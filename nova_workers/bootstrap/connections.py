"""Connections and background tasks of API and worker processes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Literal

from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.base.release import release
from nova_workers.base.stopping import stop_tasks
from nova_workers.broker.redis_connections import connect
from nova_workers.ledger.database import Access, PostgresDatabase

ConnectionName = Literal["nova-api", "nova-worker"]
"""The name of a connection in Redis (`CLIENT LIST`), and with the release in Postgres (`pg_stat_activity`)."""

_RESERVED_SHARE = 4
"""A quarter of the API's pool is for what sees all tenants: the check of keys, health, operators."""
_LOOK_TIMEOUT_S = 2.0
"""The time for Postgres to answer whether other workers live. While it does not, others look at this one too."""


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


def session_name(name: ConnectionName) -> str:
    """Return the name of a process's sessions, such as ``nova-api 0.3.0``: `nova upgrade` reads releases from them."""
    return f"{name} {release()}"


def connect_database(
    settings: Settings, name: ConnectionName, access: Access, *, per_tenant: int | None = None
) -> PostgresDatabase:
    """Return the process's pool. It connects at first use."""
    size = settings.database_pool
    return PostgresDatabase(
        settings.require_database_url(),
        pool_size=size,
        access=access,
        name=session_name(name),
        reserved=size // _RESERVED_SHARE,
        per_tenant=per_tenant,
    )


def connect_session(url: str) -> PostgresDatabase:
    """Return a database of one session, in which a worker holds its lock. It connects at first use."""
    return PostgresDatabase(
        url,
        pool_size=1,
        access="fleet",
        name=session_name("nova-worker"),
        command_timeout_s=_LOOK_TIMEOUT_S,
        keeps_sessions=True,
    )


def connect_redis(settings: Settings, name: ConnectionName) -> Redis:
    """Return the process's client. It connects at first use."""
    return connect(settings.require_redis_url(), name)
