"""The fork server of suspect runs, with real processes: clean children, their ends, and its own."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from unittest import mock

import orjson
import pytest

from nova_workers.contracts.runs import Doorbell
from nova_workers.domain.runs.rules.suspects import ForkServer, SingleRunProcess
from tests.requirements import proves
from tests.support.processes.forked_child import Report
from tests.support.processes.inspection import is_alive
from tests.support.waiting import until

_PROGRAM = ("-m", "tests.support.processes.forked_child")
_MODULE = "colorsys"
"""One that nothing imports otherwise."""


@pytest.fixture
async def server() -> AsyncIterator[ForkServer]:
    server = ForkServer(_PROGRAM, modules=lambda: ["no.such.module", _MODULE])
    yield server
    await server.close()


async def _start(server: ForkServer, command: str | Path) -> SingleRunProcess:
    return await server.start(Doorbell(str(command), "thread", "interactive"))


async def _report(file: Path) -> Report:
    await until(file.exists)
    return Report(**orjson.loads(await asyncio.to_thread(file.read_bytes)))


@proves("recover.suspect")
async def test_a_child_has_nothing_of_its_server_but_modules(server: ForkServer, tmp_path: Path):
    children = [await _start(server, tmp_path / name) for name in ("a", "b")]
    first, second = [await _report(tmp_path / name) for name in ("a", "b")]
    for report in (first, second):
        assert (report.descriptors, report.threads, report.handles_signals) == (0, 1, False)
        assert report.session == report.pid
        assert _MODULE in report.modules
    assert first.server == second.server
    for child in children:
        child.drain()
        assert await child.ended() == 0


async def test_how_a_child_ended_is_known(server: ForkServer):
    assert await (await _start(server, "exit 3")).ended() == 3
    assert await (await _start(server, "kill")).ended() == -signal.SIGKILL


async def test_the_server_ends_after_its_last_child_and_starts_again_with_the_next(tmp_path: Path):
    server = ForkServer(_PROGRAM, idle_s=0)
    reports: list[Report] = []
    for name in ("a", "b"):
        child = await _start(server, tmp_path / name)
        reports.append(await _report(tmp_path / name))
        assert is_alive(reports[-1].server)
        child.drain()
        assert await child.ended() == 0
        await until(lambda: not is_alive(reports[-1].server))
    assert reports[0].server != reports[1].server
    await server.close()


async def test_a_server_ends_although_its_last_child_could_not_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    server = ForkServer(_PROGRAM, idle_s=0)
    child = await _start(server, tmp_path / "a")
    report = await _report(tmp_path / "a")
    with monkeypatch.context() as patched:
        # Sockets of a process that has no file descriptor left.
        patched.setattr(socket, "socketpair", mock.Mock(side_effect=OSError("Too many open files")))
        with pytest.raises(OSError, match="Too many open files"):
            await _start(server, tmp_path / "b")
    child.drain()
    assert await child.ended() == 0
    await until(lambda: not is_alive(report.server))
    await server.close()


@proves("drain.suspects")
async def test_a_child_outlives_its_server_until_it_drains(server: ForkServer, tmp_path: Path):
    child = await _start(server, tmp_path / "a")
    report = await _report(tmp_path / "a")
    os.kill(report.server, signal.SIGKILL)
    await until(lambda: not is_alive(report.server))
    assert is_alive(report.pid)
    child.drain()
    assert await child.ended() is None
    await until(lambda: not is_alive(report.pid))
    assert await (await _start(server, "exit 0")).ended() == 0


@proves("drain.suspects")
async def test_nothing_outlives_a_killed_worker(tmp_path: Path):
    files = [tmp_path / "a", tmp_path / "b"]
    program = "tests.support.processes.fork_server_client"
    worker = await asyncio.create_subprocess_exec(sys.executable, "-m", program, *map(str, files))
    try:
        reports = [await _report(file) for file in files]
    finally:
        worker.kill()
        await worker.wait()
    pids = {report.server for report in reports} | {report.pid for report in reports}
    assert len(pids) == 3
    await until(lambda: not any(map(is_alive, pids)))
