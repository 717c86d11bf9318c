"""The peers as processes on loopback, each to be measured like the fleet and the floor."""

import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from tests.bench.http import LoadClient
from tests.bench.installed import Site, show_log, until_it_serves
from tests.bench.machine import tree_cpu_s
from tests.bench.peers.environments import AEGRA, LANGGRAPH, install
from tests.bench.servers import Servers
from tests.support.processes.fleet import FleetProcess, free_port
from tests.support.servers.databases import own_database

_WITHOUT_REPORTS = {"LANGGRAPH_CLI_NO_ANALYTICS": "1", "LANGSMITH_TRACING": "false", "LOG_LEVEL": "WARNING"}
"""They report no use to their makers, and log as little as `nova up` does."""


@asynccontextmanager
async def langgraph(folder: Path, jobs: int) -> AsyncGenerator[tuple[Site, str]]:
    """Run LangGraph's development server, which keeps all in memory; give it and its version.

    Args:
        folder: Of the environments.
        jobs: Runs at once.
    """
    environment = install(LANGGRAPH, folder)
    options = ("--no-browser", "--no-reload", "--server-log-level", "warning", "--n-jobs-per-worker", str(jobs))
    line = (str(environment.bin / "langgraph"), "dev", *options)
    async with _running("langgraph", line, {}, environment.project, {}) as site:
        yield site, environment.version


@asynccontextmanager
async def aegra(folder: Path, servers: Servers) -> AsyncGenerator[tuple[Site, str]]:
    """Run Aegra as its documents say for production, with Postgres and with Redis as its broker; give its version too.

    Args:
        folder: Of the environments.
        servers: Where it has a database.
    """
    environment = install(AEGRA, folder)
    await servers.empty_redis(servers.bare_redis_url)
    async with own_database(servers.admin_url, template="template1") as url:
        env = {"DATABASE_URL": url, "REDIS_URL": servers.bare_redis_url, "REDIS_BROKER_ENABLED": "true"}
        pids = {"postgres": servers.postgres_pid, "redis": servers.valkey_pid}
        line = (str(environment.bin / "aegra"), "serve", "--host", "127.0.0.1")
        async with _running("aegra", line, env, environment.project, pids) as site:
            yield site, environment.version


@asynccontextmanager
async def _running(
    name: str, line: Sequence[str], env: Mapping[str, str], project: Path, pids: Mapping[str, int]
) -> AsyncGenerator[Site]:
    port = free_port()
    env = {**_WITHOUT_REPORTS, "PATH": os.environ["PATH"], **env}
    async with AsyncExitStack() as stack:
        command = [*line, "--port", str(port)]
        process = FleetProcess(name, command, env, project / "log", preloaded=False, root=project)
        stack.callback(process.kill)
        stack.push(partial(show_log, process))
        base = f"http://127.0.0.1:{port}"
        await until_it_serves(f"{base}/docs")
        client = LoadClient(base, "none")
        stack.callback(client.close)
        readers = {each: partial(tree_cpu_s, pid) for each, pid in {"server": process.pid, **pids}.items()}
        yield Site(client, lambda _: "", readers)
