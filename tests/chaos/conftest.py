from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from pathlib import Path
from subprocess import Popen

import pytest

from models import migrate
from nova_workers.config import Settings
from nova_workers.devstack.process import ProcessSpec
from nova_workers.devstack.servers.postgres import EmbeddedPostgres
from nova_workers.devstack.servers.valkey import EmbeddedValkey
from tests.support.processes.fleet import fleet_env
from tests.support.servers.databases import running

SHORT_LEASES = {
    "NOVA_RUNS__LEASE_TTL_S": "4",
    "NOVA_RUNS__LEASE_RENEW_S": "1",
    "NOVA_RUNS__RERING_AFTER_S": "2",
    "NOVA_RUNS__RECONCILE_EVERY_S": "1",
    "NOVA_WORKER__DRAIN_GRACE_S": "3",
    "NOVA_WORKER__DRAIN_DEADLINE_S": "20",
    "NOVA_EFFECTS__ENABLED": "false",
}
"""A lost worker is noticed in seconds, so that tests need not wait for half a minute."""


def long_run(seconds: float) -> str:
    """Return a message whose turn commits a step with a tool, works for a while, and answers."""
    return json.dumps(
        {
            "script": [
                {"tool": {"name": "first", "result": "done"}},
                {"sleep_s": seconds},
                {"tool": {"name": "second", "result": "done"}},
                {"say": "The end."},
            ]
        }
    )


class Server:
    """A server of one test, which can die and restart on its data."""

    def __init__(self, spec: ProcessSpec, log: Path) -> None:
        self._spec = spec
        self._log = log
        self._running: AbstractContextManager[Popen[bytes]] | None = None
        self._process: Popen[bytes] | None = None

    async def start(self) -> None:
        """Start it, and return when it serves."""
        self._running = running(self._spec, self._log)
        # It waits with a loop of its own.
        self._process = await asyncio.to_thread(self._running.__enter__)

    async def kill(self) -> None:
        """Kill it, as a lost machine would."""
        assert self._process is not None
        self._process.kill()
        await self.stop()

    async def stop(self) -> None:
        """Stop it, if it runs."""
        if self._running is not None:
            stopping, self._running = self._running, None
            await asyncio.to_thread(stopping.__exit__, None, None, None)


class OwnServers:
    """A Postgres and a Valkey that a test may kill, durable as in production."""

    def __init__(self, home: Path) -> None:
        self.home = home
        embedded = EmbeddedPostgres(home)
        self._embedded = embedded
        valkey = EmbeddedValkey(home)
        self.postgres = Server(embedded.spec(), home / "postgres.log")
        self.valkey = Server(valkey.spec(), home / "valkey.log")
        self.database_url = embedded.url("nova")
        self.env = {"NOVA_DATABASE_URL": self.database_url, "NOVA_REDIS_URL": valkey.url(), **SHORT_LEASES}

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


@pytest.fixture
async def own_servers() -> AsyncIterator[OwnServers]:
    """Servers for this test alone."""
    home = Path(tempfile.mkdtemp(prefix="nova-chaos-"))
    servers = OwnServers(home)
    try:
        await servers.start()
        yield servers
    finally:
        await servers.stop()
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def env(settings: Settings) -> dict[str, str]:
    """Variables of a fleet on the session's servers, with short leases."""
    return {**fleet_env(settings), **SHORT_LEASES}
