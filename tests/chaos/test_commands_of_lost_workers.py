"""Commands of agents end with their worker and with their run, even if they try to escape."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nova_workers.contracts.http.wire import AgentCreate, RunView, StatelessRunCreate
from tests.requirements import proves
from tests.support.processes.fleet import Fleet
from tests.support.processes.inspection import is_alive, wait_until_gone
from tests.support.servers.model_server import Part, Stream, model_server

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="Commands have a supervisor on Linux only"),
]

_COMMAND = """
note='echo $$ >> {pids}; exec /bin/sleep 60'
(setsid env -i /bin/sh -c "$note" &)
setsid env -i /bin/sh -c "$note" &
echo $$ >> {pids}
wait
"""
"""A shell with a child and an orphan, both with sessions of their own and no environment."""


@pytest.fixture
async def fleet(env: dict[str, str], tmp_path: Path) -> AsyncIterator[Fleet]:
    """A fleet whose model calls Bash."""
    async with model_server() as server:
        command = _COMMAND.format(pids=tmp_path / "pids")
        server.reply(Stream((Part("tool", ("toolu_1", "Bash", {"command": command})),)))
        model = {"NOVA_MODEL__BASE_URL": server.url, "NOVA_MODEL__API_KEY": "key"}
        async with Fleet({**env, **model}, workers=1) as fleet:
            yield fleet


async def _start_command(fleet: Fleet, file: Path) -> tuple[RunView, set[int]]:
    """Start a run, and return it with the processes of its command."""
    await fleet.client.agents.create(AgentCreate(id="shell", name="Shell", engine="anthropic", trust="unrestricted"))
    run = await fleet.client.runs.create(StatelessRunCreate(agent_id="shell", message="go"))
    pids: list[str] = []
    async with asyncio.timeout(60):
        while len(pids) < 3:
            await asyncio.sleep(0.05)
            pids = _lines(file)
    found = {int(pid) for pid in pids}
    assert all(is_alive(pid) for pid in found)
    return run, found


def _lines(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []


@proves("child.killed-worker")
async def test_the_commands_of_a_killed_worker_end_with_it(fleet: Fleet, tmp_path: Path) -> None:
    _, pids = await _start_command(fleet, tmp_path / "pids")
    # The worker alone, and not its group.
    os.kill(fleet.workers[0].pid, signal.SIGKILL)
    assert await asyncio.to_thread(wait_until_gone, pids, 5) == set()


@proves("child.descendants")
async def test_the_commands_of_a_canceled_run_end_with_it(fleet: Fleet, tmp_path: Path) -> None:
    run, pids = await _start_command(fleet, tmp_path / "pids")
    await fleet.client.runs.cancel(run.id)
    assert await asyncio.to_thread(wait_until_gone, pids, 10) == set()
