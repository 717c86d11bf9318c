"""An embedded Valkey: a plain child process on a private Unix socket."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from redis.asyncio import Redis
from redis.exceptions import RedisError

from nova_workers.devstack.environments import system_environment
from nova_workers.devstack.process import ProcessSpec
from nova_workers.devstack.servers.binaries import valkey_program
from nova_workers.devstack.servers.sockets import socket_folder


class EmbeddedValkey:
    """Valkey with its data under a home folder.

    Args:
        home: Data goes to ``<home>/valkey``.
        databases: Number of logical databases.
    """

    def __init__(self, home: Path, *, databases: int = 16) -> None:
        self._data = home.absolute() / "valkey"
        self._socket = socket_folder(self._data) / "valkey.sock"
        self._databases = databases

    def url(self, database: int = 0) -> str:
        """Return the URL of one logical database."""
        return f"unix://{self._socket}?db={database}"

    def spec(self) -> ProcessSpec:
        """Prepare the data folder and return the process to run."""
        self._data.mkdir(mode=0o700, parents=True, exist_ok=True)
        options = {
            "port": "0",
            "unixsocket": str(self._socket),
            "unixsocketperm": "600",
            "dir": str(self._data),
            "databases": str(self._databases),
            # The reconciler rings lost doorbells again, so losing one second of them is acceptable.
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            # Locks and queues must never be evicted; a full Redis must fail.
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
            "loglevel": "warning",
        }
        arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
        return ProcessSpec(
            name="valkey",
            argv=(str(valkey_program()), *arguments),
            inherited=system_environment(os.environ),
            ready=self._answers,
            stop_signal=signal.SIGTERM,
            death_signal=signal.SIGTERM,
        )

    async def _answers(self) -> bool:
        client = Redis.from_url(self.url(), socket_timeout=2)
        try:
            return bool(await client.ping())
        except (RedisError, OSError):
            return False
        finally:
            await client.aclose()
