"""A Postgres and a Valkey of one test, which it may kill, freeze and start again on their data."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from subprocess import Popen

from models import migrate
from nova_workers.devstack.process import ProcessSpec
from nova_workers.devstack.servers.postgres import EmbeddedPostgres
from nova_workers.devstack.servers.valkey import EmbeddedValkey
from tests.support.processes.inspection import descendants
from tests.support.servers.databases import running


class Server:
    """A server that can die and restart on its data."""

    def __init__(self, spec: ProcessSpec, log: Path) -> None:
        self._spec = spec
        self._log = log
        self._running: AbstractContextManager[Popen[bytes]] | None = None
        self._process: Popen[bytes] | None = None

    @property
    def is_up(self) -> bool:
        """Whether its process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Start it, and return when it serves."""
        self._running = running(self._spec, self._log)
        # It waits with a loop of its own.
        self._process = await asyncio.to_thread(self._running.__enter__)

    async def kill(self) -> None:
        """Kill it, as a lost machine would."""
        self.send_signal(signal.SIGKILL)
        await self.stop()

    async def stop(self) -> None:
        """Stop it, if it runs."""
        if self._running is not None:
            stopping, self._running = self._running, None
            await asyncio.to_thread(stopping.__exit__, None, None, None)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to its main process."""
        os.kill(self.pid, number)

    def freeze(self) -> None:
        """Stop all its processes where they are."""
        for pid in (self.pid, *descendants(self.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue all its processes."""
        for pid in (*descendants(self.pid), self.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


class OwnServers:
    """A Postgres and a Valkey, durable as in production.

    Args:
        home: Their data, in a folder each.
        settings: Of Postgres, on top of those of `nova up`.

    Attributes:
        postgres: The database server.
        valkey: The Redis.
        database_url: The migrated database, by Postgres's own socket.
        redis_url: By Valkey's own socket.
        env: The variables of a fleet on them.
        programs: The folder of Postgres's programs, such as `pg_dump`.
    """

    def __init__(self, home: Path, *, settings: dict[str, str] | None = None) -> None:
        self.home = home
        embedded = EmbeddedPostgres(home / "sql", settings=settings)
        self._embedded = embedded
        valkey = EmbeddedValkey(home)
        self.postgres = Server(embedded.spec(), home / "postgres.log")
        self.valkey = Server(valkey.spec(), home / "valkey.log")
        self.database_url = embedded.url("nova")
        self.redis_url = valkey.url()
        self.programs = embedded.programs
        self.env = {"NOVA_DATABASE_URL": self.database_url, "NOVA_REDIS_URL": self.redis_url}

    async def start(self) -> None:
        """Start both, with a migrated database."""
        await self.postgres.start()
        await self.valkey.start()
        await self._embedded.create_database("nova")
        await migrate.upgrade(self.database_url)

    async def stop(self) -> None:
        """Stop both."""
        await self.valkey.stop()
        await self.postgres.stop()
