"""The fleet as users start it, `nova up` with its default settings, and the floor beside it."""

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx2
import orjson

from nova_workers.devstack.commands import API_APP, BEAT_APP, CONSOLE_APP, WORKER_APP
from nova_workers.devstack.first_start import KEY_FILE
from nova_workers.devstack.home import StackState, read_state
from tests.bench.floor import DATABASE, REDIS
from tests.bench.http import LoadClient
from tests.bench.machine import CpuMeter, cpu_s, descendants_cpu_s, tree_cpu_s
from tests.bench.servers import Servers
from tests.support.processes.fleet import FleetProcess, free_port
from tests.support.processes.inspection import command_lines, descendants
from tests.support.servers.databases import own_database

_DEADLINE_S = 120.0
_POLL_S = 0.02
_FLOOR_SLOTS = 256
"""As many threads as the fleet's worker has slots."""
PROCESSES = {
    "api": API_APP,
    "worker": f"{WORKER_APP} worker",
    "beat": f"{BEAT_APP} beat",
    "flower": " flower ",
    "console": CONSOLE_APP,
    "postgres": "postgres ",
    "valkey": "valkey-server",
}
"""By name, a part of the command line. The first process of the tree that has it is meant."""


@dataclass(frozen=True, slots=True)
class Site:
    """A server to put load on.

    Attributes:
        client: Sends requests to it.
        sleeping: Return the message of a turn that only waits for some seconds.
        readers: By process, how to read the CPU seconds that it has used so far.
    """

    client: LoadClient
    sleeping: Callable[[float], str]
    readers: Mapping[str, Callable[[], float]]

    def meter(self) -> CpuMeter:
        """Return a meter of its processes."""
        return CpuMeter(self.readers)


def installed_environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment without the developer's own settings, and with those that are given."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NOVA_", "ANTHROPIC_"))}
    return {**kept, **given}


@asynccontextmanager
async def running_up(
    home: Path,
    given: Mapping[str, str] | None = None,
    *,
    tree: Path | None = None,
    command: Sequence[str] = ("up",),
) -> AsyncGenerator[tuple[StackState, int]]:
    """Run `nova up` on a home until the block ends; give its state and its process id.

    Args:
        home: Of the fleet.
        given: Settings that differ from the defaults.
        tree: The checkout whose code runs, in this environment; this one by default.
        command: Another command of `nova` that starts a fleet.
    """
    env = installed_environment({"NOVA_HOME": str(home), "NOVA_API__PORT": "0", **(given or {})})
    line = (sys.executable, "-m", "nova_workers.cli", *command)
    silent = asyncio.subprocess.DEVNULL
    fleet = await asyncio.create_subprocess_exec(*line, env=env, stdout=silent, stderr=silent, cwd=tree)
    try:
        async with asyncio.timeout(_DEADLINE_S):
            while (state := read_state(home)) is None:
                assert fleet.returncode is None, f"`nova {command[0]}` ended with {fleet.returncode}"
                await asyncio.sleep(_POLL_S)
        yield state, fleet.pid
    finally:
        if fleet.returncode is None:
            fleet.send_signal(signal.SIGINT)
        try:
            async with asyncio.timeout(_DEADLINE_S):
                await fleet.wait()
        except TimeoutError:
            fleet.kill()
            raise


@asynccontextmanager
async def nova_up(given: Mapping[str, str] | None = None, *, tree: Path | None = None) -> AsyncGenerator[Site]:
    """Run the fleet as users start it, with the scripted engine in place of a model.

    Args:
        given: Settings that differ from the defaults.
        tree: The checkout whose code runs; this one by default.
    """
    with tempfile.TemporaryDirectory(prefix="nova-bench-") as folder:
        home = Path(folder)
        settings = {"NOVA_DEFAULT_ENGINE": "scripted", **(given or {})}
        async with running_up(home, settings, tree=tree) as (state, pid):
            client = LoadClient(state.api_url, (home / KEY_FILE).read_text(encoding="ascii").strip())
            try:
                yield Site(client, _scripted_sleep, _readers(pid))
            finally:
                client.close()


def _scripted_sleep(seconds: float) -> str:
    return orjson.dumps({"script": [{"sleep_s": seconds}, {"say": "Done"}]}).decode()


def _readers(pid: int) -> dict[str, Callable[[], float]]:
    lines = command_lines(descendants(pid))
    readers: dict[str, Callable[[], float]] = {"nova up": partial(cpu_s, pid)}
    for name, part in PROCESSES.items():
        found = next((child for child, line in lines.items() if part in line), None)
        assert found is not None, f"`nova up` runs no {name}: {lines}"
        # Postgres is a process a connection; a worker's children are the embeddings.
        readers[name] = partial(tree_cpu_s if name == "postgres" else cpu_s, found)
        if name == "worker":
            readers["embeddings"] = partial(descendants_cpu_s, found)
    return readers


@asynccontextmanager
async def floor(servers: Servers, *, preloaded: bool = False) -> AsyncGenerator[Site]:
    """Run the floor; for `preloaded` see `FleetProcess`."""
    await servers.empty_redis(servers.bare_redis_url)
    port = free_port()
    api = ("uvicorn", "tests.bench.floor.api:app", "--port", str(port), "--log-level", "warning", "--no-access-log")
    worker = (
        *("celery", "--app", "tests.bench.floor.worker:app", "worker", "--pool", "threads", "--queues", "floor"),
        *("--concurrency", str(_FLOOR_SLOTS), "--loglevel", "warning"),
        *("--without-gossip", "--without-mingle", "--without-heartbeat"),
    )
    with tempfile.TemporaryDirectory(prefix="nova-bench-") as folder:
        async with own_database(servers.admin_url) as url, AsyncExitStack() as stack:
            env = {DATABASE: url, REDIS: servers.bare_redis_url}
            pids: dict[str, int] = {}
            for name, command in {"api": api, "worker": worker}.items():
                line = [sys.executable, "-m", *command]
                process = FleetProcess(f"floor-{name}", line, env, Path(folder) / name, preloaded=preloaded)
                stack.callback(process.kill)
                stack.push(partial(show_log, process))
                pids[name] = process.pid
            base = f"http://127.0.0.1:{port}"
            await until_it_serves(f"{base}/docs")
            client = LoadClient(base, "none")
            stack.callback(client.close)
            readers = {
                "api": partial(cpu_s, pids["api"]),
                "worker": partial(cpu_s, pids["worker"]),
                "postgres": partial(tree_cpu_s, servers.postgres_pid),
                "valkey": partial(tree_cpu_s, servers.valkey_pid),
            }
            yield Site(client, lambda seconds: f"sleep:{seconds}", readers)


def show_log(process: FleetProcess, kind: type[BaseException] | None, *_: object) -> None:
    """Print the end of a process's log if a block ends with an error: for an exit stack."""
    if kind is not None:
        sys.stderr.write(process.tail() + "\n")


async def until_it_serves(url: str) -> None:
    """Wait until a GET succeeds."""
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as client, asyncio.timeout(_DEADLINE_S):
        while True:
            try:
                if (await client.get(url)).is_success:
                    return
            except httpx2.HTTPError:
                await asyncio.sleep(_POLL_S)
