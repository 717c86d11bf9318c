"""A real fleet for tests: API, workers and beat as processes of their own, on the test's database and broker.

    async with Fleet(fleet_env(settings), workers=2, beat=True) as fleet:
        run = await fleet.client.runs.create(...)
        fleet.workers[0].kill()
        await fleet.start_worker()

The engine is `scripted` and the agent `nova` exists, so a message is echoed and ``{"script": […]}`` is played.

It waits for readiness: the API's `/readyz`, a worker's row in `/v1/fleet`. Logs go to files, whose ends are part of the
error when a process does not start. No process outlives the block or the test process: each child asks the kernel to be
killed when its parent dies.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from nova_workers.base.config import Settings
from nova_workers.base.errors import NovaError
from nova_workers.base.ids import new_id
from nova_workers.client.client import NovaClient
from nova_workers.contracts.http.fleet import WorkerView
from nova_workers.devstack.commands import WORKER_APP, api_command, beat_command, worker_command
from nova_workers.devstack.process import ProcessSpec
from nova_workers.domain.agents.sql.records import seed_defaults
from nova_workers.domain.keys.sql.keys import create_key
from nova_workers.domain.tenants.sql.settings import ensure_tenant
from nova_workers.ledger.database import PostgresDatabase
from tests.support.processes.preloaded import PreloadedProcess, stream_of

ROOT = Path(__file__).resolve().parents[3]
ALL_QUEUES = ("interactive", "background", "effects", "system")
ALL_SCOPES = ("runs", "prompts", "agents", "trust", "workspace", "secrets", "keys", "channels", "operator")
_START_S = 120.0
_POLL_S = 0.05
_READY_POLL_S = 0.3
"""A look at the fleet costs as much CPU as a turn, and delays the start that it waits for."""
_LOG_LINES = 40


def fleet_env(settings: Settings) -> dict[str, str]:
    """Return the variables that point a process at the same servers as `settings`."""
    return {
        "NOVA_DATABASE_URL": settings.require_database_url(),
        "NOVA_REDIS_URL": settings.require_redis_url(),
    }


def free_port() -> int:
    """Return a free port of loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def add_api_key(
    database_url: str, *, scopes: tuple[str, ...] = ALL_SCOPES, tenant_id: str | None = None
) -> tuple[str, str]:
    """Create a key, and a tenant with the default agents unless one is given; return (key, tenant id)."""
    database = PostgresDatabase(database_url, pool_size=1)
    tenant = tenant_id or new_id("ten")
    try:
        async with database.transaction() as connection:
            if await ensure_tenant(connection, tenant, "test"):
                await seed_defaults(connection, tenant)
            made = await create_key(connection, tenant, name="test", scopes=scopes)
    finally:
        await database.close()
    return made.key, tenant


class FleetProcess:
    """One process of the fleet, in a session of its own.

    Args:
        name: Its role and number, such as ``worker-0``.
        command: A command line of Python with ``-m``.
        env: Variables on top of ours.
        log: The file of its output.
        preloaded: Whether it begins with the fleet's modules imported. Not for measurements, and not possible for a
            library that must be loaded before all others.
        root: The folder of its code; another release's is not preloaded.
    """

    def __init__(
        self,
        name: str,
        command: list[str],
        env: Mapping[str, str],
        log: Path,
        *,
        preloaded: bool = True,
        root: Path = ROOT,
    ) -> None:
        self.name = name
        self.log = log
        spec = ProcessSpec(name=name, argv=tuple(command), env=env)
        if preloaded and root == ROOT and "LD_PRELOAD" not in env:
            assert command[:2] == [sys.executable, "-m"], command
            streams = (os.devnull, stream_of(log), stream_of(log))
            self._process = PreloadedProcess(command[2], command[3:], env=spec.environment(), streams=streams, cwd=ROOT)
            return
        with log.open("ab") as sink:
            self._process = subprocess.Popen(
                spec.command(),
                env=spec.environment(),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                cwd=root,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code; minus the signal's number after a signal; None while it runs."""
        return self._process.poll()

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self.exit_code is not None

    def kill(self) -> None:
        """Kill the process and its children, as a lost machine would: without a message or cleanup."""
        self._signal_session(signal.SIGKILL)
        self._process.wait()

    def terminate(self) -> None:
        """Ask it to end, and return at once; see `ended`."""
        if self.exit_code is None:
            os.kill(self.pid, signal.SIGTERM)

    def send_signal(self, number: signal.Signals) -> None:
        """Send any signal, such as SIGSTOP and SIGCONT for a worker that hangs for a while."""
        os.kill(self.pid, number)

    async def ended(self, timeout_s: float = 40.0) -> int:
        """Wait until it ended, and return its exit code."""
        await _until(lambda: self.exit_code is not None, timeout_s, f"{self.name} to end", self.tail)
        code = self.exit_code
        assert code is not None
        return code

    def tail(self, lines: int = _LOG_LINES) -> str:
        """Return the end of its log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        state = "running" if self.exit_code is None else f"exit code {self.exit_code}"
        return f"--- {self.name} (pid {self.pid}, {state}), {self.log}\n" + "\n".join(text.splitlines()[-lines:])

    def _signal_session(self, number: signal.Signals) -> None:
        try:
            # The session was made for this process, so its group holds only it and its children.
            os.killpg(self.pid, number)
        except ProcessLookupError:
            if self.exit_code is None:
                # It has not made its session yet.
                os.kill(self.pid, number)


class Fleet:
    """An API, workers and beat. Use it as an async context manager.

    Args:
        env: NOVA_DATABASE_URL and NOVA_REDIS_URL, and any other variable for all processes.
        workers: How many worker processes to start with.
        concurrency: Slots per worker.
        beat: Whether to start beat; without it nothing is reconciled.
        api: Whether to start an API; without one there is no `client`, and workers are not waited for.
        api_key: A key that is in the database; None makes a tenant and a key with every scope.
        log_dir: Where logs go; None makes a temporary folder that is deleted after a clean end.
        preloaded: See `FleetProcess`.
        embeddings: Whether runs get embeddings of the real model: 0.4 s of CPU for the first run of each worker.

    Attributes:
        client: A client with the key.
        tenant_id: The tenant that was made; None when a key was given.
        workers: The worker processes, also those that died.
    """

    client: NovaClient

    def __init__(
        self,
        env: Mapping[str, str],
        *,
        workers: int = 1,
        beat: bool = False,
        concurrency: int = 8,
        queues: tuple[str, ...] = ALL_QUEUES,
        api: bool = True,
        api_key: str | None = None,
        log_dir: Path | None = None,
        preloaded: bool = True,
        embeddings: bool = False,
    ) -> None:
        self._preloaded = preloaded
        self._count = workers
        self._with_api = api
        self._with_beat = beat
        self._concurrency = concurrency
        self._queues = queues
        self._log_dir = log_dir
        self._stack = AsyncExitStack()
        self.env = {"NOVA_EFFECTS__EMBEDDING_PROVIDER": "local" if embeddings else "off", **env}
        self.api_key = api_key or ""
        self.api_url = ""
        self.tenant_id: str | None = None
        self.workers: list[FleetProcess] = []
        self.api: FleetProcess | None = None
        self.beat: FleetProcess | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes:
            process.kill()
        if error is not None:
            # Into the report of the failed test, where the logs are needed.
            sys.stderr.write(self.tails() + "\n")
        await self._stack.aclose()

    @property
    def processes(self) -> list[FleetProcess]:
        """Every process that was started."""
        return [process for process in (self.beat, *self.workers, self.api) if process is not None]

    async def start_worker(
        self,
        *,
        concurrency: int | None = None,
        queues: tuple[str, ...] | None = None,
        env: Mapping[str, str] | None = None,
        ready: bool = True,
        app: str = WORKER_APP,
    ) -> FleetProcess:
        """Start one more worker, of any app, and return it when it takes runs (or at once, without `ready`)."""
        slots = concurrency or self._concurrency
        name = f"worker-{len(self.workers)}"
        command = worker_command(concurrency=slots, queues=queues or self._queues, name=name, log_level="info")
        command[command.index(WORKER_APP)] = app
        worker = self._spawn(name, command, {"NOVA_WORKER__CONCURRENCY": str(slots), **(env or {})})
        self.workers.append(worker)
        if ready and self._with_api:
            await self.worker_ready(worker)
        return worker

    async def worker_ready(self, worker: FleetProcess, timeout_s: float = _START_S) -> WorkerView:
        """Wait until a worker shows in the fleet's view, and return its row."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            for row in (await self.client.fleet.view()).workers or ():
                if row.pid == worker.pid:
                    return row
            self._check(worker, deadline_s, "be in the fleet's view")
            await asyncio.sleep(_READY_POLL_S)

    async def start_beat(self) -> FleetProcess:
        """Start beat."""
        self.beat = self._spawn("beat", beat_command(log_level="info"), {})
        return self.beat

    async def start_api(self) -> FleetProcess:
        """Start the API, also again on the same port, and return it when it answers."""
        api = self.start_api_process()
        deadline_s = time.monotonic() + _START_S
        while True:
            try:
                await self.client.readyz()
            except NovaError:
                self._check(api, deadline_s, "answer /readyz")
                await asyncio.sleep(_POLL_S)
            else:
                return api

    def start_api_process(self) -> FleetProcess:
        """Start the API, also again on the same port, and return at once."""
        port = int(self.api_url.rsplit(":", 1)[1])
        self.api = self._spawn("api", api_command(host="127.0.0.1", port=port, log_level="info"), {})
        return self.api

    def tails(self) -> str:
        """Return the ends of all logs."""
        return "\n".join(process.tail() for process in self.processes)

    async def _start(self) -> None:
        if self._log_dir is None:
            self._logs = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="nova-fleet-")))
        else:
            self._logs = self._log_dir
            self._logs.mkdir(parents=True, exist_ok=True)
        self.env.setdefault("NOVA_HOME", str(self._logs))
        self.env.setdefault("NOVA_TELEMETRY__LOG_FORMAT", "json")
        self.env.setdefault("NOVA_DEFAULT_ENGINE", "scripted")
        if not self._with_api:
            for _ in range(self._count):
                await self.start_worker()
            return
        if not self.api_key:
            self.api_key, self.tenant_id = await add_api_key(self.env["NOVA_DATABASE_URL"])
        self.api_url = f"http://127.0.0.1:{free_port()}"
        self.client = await self._stack.enter_async_context(NovaClient(self.api_url, self.api_key))
        # All at once: each start is a second of imports.
        started = [await self.start_worker(ready=False) for _ in range(self._count)]
        if self._with_beat:
            await self.start_beat()
        await self.start_api()
        for worker in started:
            await self.worker_ready(worker)

    def _spawn(self, name: str, command: list[str], env: Mapping[str, str]) -> FleetProcess:
        log = self._logs / f"{name}.log"
        return FleetProcess(name, command, {**self.env, **env}, log, preloaded=self._preloaded)

    def _check(self, process: FleetProcess, deadline_s: float, what: str) -> None:
        if process.exit_code is not None:
            raise AssertionError(f"{process.name} ended before it could {what}\n{self.tails()}")
        if time.monotonic() > deadline_s:
            raise AssertionError(f"{process.name} did not {what} in time\n{self.tails()}")


async def _until(done: Callable[[], bool], timeout_s: float, what: str, tail: Callable[[], str]) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() > deadline_s:
            raise AssertionError(f"waited {timeout_s} s for {what}\n{tail()}")
        await asyncio.sleep(_POLL_S)
