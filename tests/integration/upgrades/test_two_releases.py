"""API and workers of the previous release and of this one, from their wheels, under load, on one database."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from models import migrate
from nova_workers.base.errors import NovaError
from nova_workers.client.client import NovaClient
from nova_workers.contracts.agents import ApprovalRule, Permissions
from nova_workers.contracts.events import StreamEnd, Token
from nova_workers.contracts.http.tenants import TenantCreate
from nova_workers.contracts.http.wire import AgentCreate, AgentPatch, StatelessRunCreate
from nova_workers.ledger.database import PostgresDatabase
from tests.requirements import proves
from tests.support.data.previous_release import REVISION, unpack
from tests.support.data.wheels import unpack_wheel
from tests.support.processes.fleet import ALL_QUEUES, ROOT, FleetProcess, free_port
from tests.support.waiting import until

pytestmark = pytest.mark.fleet

# In the release's own code: its command lines, and a database as its `nova up` makes one.
_COMMAND = "import json; from nova_workers.devstack import commands; print(json.dumps(commands.{what}(**{options!r})))"
_PREPARE = """
import asyncio
from nova_workers.config import load_settings
from nova_workers.devstack.first_start import prepare_database
settings = load_settings()
settings.home.mkdir(parents=True, exist_ok=True)
print(asyncio.run(prepare_database(settings, settings.require_database_url())).read_text())
"""
_START_S = 120.0
_LOAD = 60
"""Messages that are sent while the worker of the previous release stops: some run there, and move."""


@dataclass(frozen=True)
class _Release:
    """The unpacked wheel of one release, and the processes that it starts."""

    root: Path
    env: dict[str, str]
    logs: Path

    def python(self, code: str) -> str:
        """Run a program in its code, and return what it prints."""
        env = {**os.environ, **self.env, "PYTHONPATH": str(self.root)}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=self.root, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def start(self, process: str, what: str, **options: Any) -> FleetProcess:
        """Start a process from its command line."""
        command: list[str] = json.loads(self.python(_COMMAND.format(what=what, options=options)))
        env = {**self.env, "PYTHONPATH": str(self.root)}
        return FleetProcess(process, command, env, self.logs / f"{process}.log", root=self.root)

    def start_worker(self, name: str) -> FleetProcess:
        """Start a worker of all queues."""
        return self.start(name, "worker_command", concurrency=8, queues=ALL_QUEUES, name=name, log_level="info")


@dataclass
class _Fleet:
    """Two releases on one database that the previous one made and this one migrated."""

    previous: _Release
    this: _Release
    key: str
    database_url: str
    processes: list[FleetProcess]

    @asynccontextmanager
    async def api(self, release: _Release, name: str) -> AsyncGenerator[NovaClient]:
        """Start an API, and give a client of it."""
        port = free_port()
        process = release.start(name, "api_command", host="127.0.0.1", port=port, log_level="info")
        self.processes.append(process)
        async with NovaClient(f"http://127.0.0.1:{port}", self.key) as client:
            await until(lambda: _answers(client), f"{name} to answer", timeout_s=_START_S)
            yield client

    async def worker(self, release: _Release, name: str, seen_by: NovaClient) -> FleetProcess:
        """Start a worker, and return it when an API sees it."""
        process = release.start_worker(name)
        self.processes.append(process)
        await until(lambda: _serves(seen_by, process.pid), f"{name} to serve", timeout_s=_START_S)
        return process


async def _answers(client: NovaClient) -> bool:
    try:
        await client.healthz()
    except NovaError:
        return False
    return True


async def _serves(client: NovaClient, pid: int) -> bool:
    return any(worker.pid == pid for worker in (await client.fleet.view()).workers or ())


@pytest.fixture
async def fleet(empty_url: str, redis_url: str, tmp_path: Path) -> AsyncGenerator[_Fleet]:
    env = {
        "NOVA_DATABASE_URL": empty_url,
        "NOVA_REDIS_URL": redis_url,
        "NOVA_HOME": str(tmp_path / "home"),
        "NOVA_DEFAULT_ENGINE": "scripted",
        "NOVA_EFFECTS__EMBEDDING_PROVIDER": "off",
    }
    unpack(tmp_path / "previous-source")
    roots = {tmp_path / "previous": tmp_path / "previous-source", tmp_path / "this": ROOT}
    for root, source in roots.items():
        await asyncio.to_thread(unpack_wheel, source, root)
    previous, this = (_Release(root, env, tmp_path) for root in roots)
    for release in (previous, this):
        where = await asyncio.to_thread(release.python, "import nova_workers; print(nova_workers.__file__)")
        assert where.startswith(str(release.root)), "the release is that of its wheel"
    key = await asyncio.to_thread(previous.python, _PREPARE)
    assert await migrate.current(empty_url) == REVISION
    await migrate.upgrade(empty_url)
    fleet = _Fleet(previous, this, key, empty_url, [])
    try:
        yield fleet
    finally:
        for process in fleet.processes:
            process.kill()
        sys.stderr.write("\n".join(process.tail() for process in fleet.processes))


def _script(steps: int) -> str:
    items = [{"say": f"{number}. ", "tool": {"name": "look", "sleep_s": 0.1}} for number in range(steps)]
    return json.dumps({"script": [*items, {"say": "That is all."}]})


async def _follow(client: NovaClient, run_id: str) -> tuple[str, list[int]]:
    """Return the text of a run as a client sees it, and the attempts that told it."""
    said: list[str] = []
    attempts: set[int] = set()
    last: object = None
    async for cursor, event in client.runs.events(run_id):
        attempts.add(cursor.attempt)
        if isinstance(event, Token):
            said.append(event.text)
        last = event
    assert isinstance(last, StreamEnd)
    assert last.final
    return "".join(said), sorted(attempts)


async def _complete(via: NovaClient, *others: NovaClient, agent_id: str = "nova") -> None:
    """Send a message, and follow its run through every API."""
    run = await via.runs.create(StatelessRunCreate(message=_script(2), agent_id=agent_id))
    for text, attempts in await asyncio.gather(*(_follow(client, run.id) for client in (via, *others))):
        assert (text, attempts) == ("0. 1. That is all.", [1])
    for client in (via, *others):
        assert (await client.runs.get(run.id)).status == "succeeded"


@proves("upgrade.beside")
async def test_two_releases_serve_one_fleet_and_take_over_each_others_runs(fleet: _Fleet) -> None:
    async with AsyncExitStack() as stack:
        previous_api, this_api = [
            await stack.enter_async_context(fleet.api(release, name))
            for release, name in ((fleet.previous, "previous-api"), (fleet.this, "this-api"))
        ]
        previous_worker = await fleet.worker(fleet.previous, "previous-worker", this_api)
        # The new API before the old worker, and the old API on the new schema.
        await _complete(this_api, previous_api)
        await _save_agents(this_api)
        await _complete(this_api, previous_api, agent_id="saved")
        tenant = await this_api.tenants.create(TenantCreate(name="Made by this release"))
        async with NovaClient(previous_api.base_url, tenant.key.key) as of_tenant:
            for client in (previous_api, of_tenant):
                assert "nova" in {agent.id for agent in (await client.agents.list()).items}
        await fleet.worker(fleet.this, "this-worker", previous_api)
        # Both are there: no run has to last until a worker has started.
        long_id = await _begun_by(previous_worker, fleet.database_url, this_api)
        following = asyncio.gather(*(_follow(client, long_id) for client in (this_api, previous_api)))
        load = asyncio.create_task(_send(this_api, previous_api))
        # As a rolling deploy does: the run goes on in the new worker, after its last step.
        previous_worker.terminate()
        assert await previous_worker.ended() == 0
        for _, attempts in await following:
            assert attempts[0] == 1
            assert attempts[-1] >= 2
        ended = await this_api.runs.get(long_id)
        assert ended.status == "succeeded"
        await _all_succeed(this_api, await load)
        # The old API before the new worker.
        await _complete(previous_api, this_api)


async def _send(*clients: NovaClient) -> list[str]:
    """Send messages through the APIs in turn, and return the runs that were accepted."""
    sent = [await clients[number % len(clients)].runs.create(_short()) for number in range(_LOAD)]
    return [run.id for run in sent]


def _short() -> StatelessRunCreate:
    return StatelessRunCreate(message=_script(1))


async def _all_succeed(client: NovaClient, runs: list[str]) -> None:
    for run_id in runs:
        text, _ = await _follow(client, run_id)
        assert text == "0. That is all."
        ended = await client.runs.get(run_id)
        assert ended.status == "succeeded", ended


async def _save_agents(client: NovaClient) -> None:
    """Save a new agent, and one that the previous release made, without anything that is new in this release."""
    rule = ApprovalRule(tool="Bash", pattern="git *", decision="always")
    await client.agents.create(AgentCreate(id="saved", name="Saved", permissions=Permissions(approvals=(rule,))))
    await client.agents.patch("nova", AgentPatch(description="Saved again."))


async def _begun_by(worker: FleetProcess, database_url: str, client: NovaClient) -> str:
    """Return a run that a worker has begun. Other workers may take the first ones that are made for it."""
    [worker_id] = [each.id for each in (await client.fleet.view()).workers or () if each.pid == worker.pid]
    database = PostgresDatabase(database_url, pool_size=1)
    try:
        for _ in range(20):
            run = await client.runs.create(StatelessRunCreate(message=_script(60)))

            async def holder(run_id: str = run.id) -> str | None:
                return await database.fetchval("SELECT worker_id FROM runs WHERE id = :run_id", run_id=run_id)

            await until(holder, "a worker to begin a run", timeout_s=_START_S)
            if await holder() == worker_id:
                return run.id
    finally:
        await database.close()
    raise AssertionError("The other worker took each of 20 runs.")
