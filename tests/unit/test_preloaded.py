"""Processes of a fleet that are forked from a server end with the test process, however it ends."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.support.processes import preloaded
from tests.support.processes.fork_server import fork_server
from tests.support.processes.inspection import descendants, wait_until_gone
from tests.support.servers.databases import delete_abandoned
from tests.support.waiting import until

_TESTS = """
import os
import sys
from pathlib import Path

from tests.support.processes import preloaded

# They need none.
preloaded._MODULES = ()
arguments = ["0", "--bind", "127.0.0.1"]
log = preloaded.stream_of(Path(sys.argv[1]))
streams = (os.devnull, log, log)
for _ in range(2):
    log = preloaded.stream_of(Path(sys.argv[1]))
    streams = (os.devnull, log, log)
    process = preloaded.PreloadedProcess("http.server", arguments, env={}, streams=streams, cwd=Path.cwd())
    print(process.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="no other kernel ends a process with its parent")
@pytest.mark.parametrize(
    "shared",
    [
        # As without xdist, where few fleets run.
        pytest.param(False, id="with its own fork server", marks=pytest.mark.long),
        pytest.param(True, id="with the one of all test workers"),
    ],
)
def test_a_killed_test_process_leaves_no_fork_server_and_no_fleet(tmp_path: Path, *, shared: bool) -> None:
    command = [sys.executable, "-c", _TESTS, str(tmp_path / "log")]
    env = dict(os.environ)
    env.pop(preloaded.SHARED_SOCKET, None)
    with fork_server(preloaded.__name__) if shared else nullcontext() as socket:
        if socket:
            env[preloaded.SHARED_SOCKET] = socket
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as tests:
            assert tests.stdout is not None
            try:
                started = {int(tests.stdout.readline()) for _ in range(2)} | set(descendants(tests.pid))
            finally:
                tests.kill()
        left = wait_until_gone(started, timeout_s=60)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left
    # The fork server, the one of this test process, and two processes.
    assert len(started) == (2 if shared else 4)


def test_homes_of_killed_test_processes_are_deleted_and_no_others(tmp_path: Path) -> None:
    for name in ("nova-test-killed/in-use", "nova-test-runs/in-use", "nova-test-begins/lock", "others/in-use"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    with (tmp_path / "nova-test-runs" / "in-use").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        delete_abandoned(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["nova-test-begins", "nova-test-runs", "others"]


_BLOCKING_TEST = """
import os, signal
from pathlib import Path

def test_it_waits(database_url: str, redis_url: str) -> None:
    Path(__file__).with_name("begun").touch()
    signal.pause()
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="no other kernel ends a process with its parent")
async def test_a_killed_controller_of_test_workers_leaves_no_worker_and_no_server(tmp_path: Path) -> None:
    (tmp_path / "test_blocking.py").write_text(_BLOCKING_TEST)
    command = [sys.executable, "-m", "pytest", "-n2", "-q", "--rootdir", ".", "-c", "pyproject.toml"]
    command += ["-p", "tests.conftest", str(tmp_path / "test_blocking.py")]
    names = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    names.pop(preloaded.SHARED_SOCKET, None)
    controller = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL, env=names)
    try:
        await until((tmp_path / "begun").exists, timeout_s=120)
        started = set(descendants(controller.pid))
    finally:
        controller.kill()
        await controller.wait()
    left = await asyncio.to_thread(wait_until_gone, started, timeout_s=60)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left
    # Three fork servers, two workers with the interpreters that xdist started for them, Postgres, two Valkeys.
    assert len(started) >= 10


def test_all_test_workers_share_a_fork_server() -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        pytest.skip("a single test process has its own")
    assert Path(os.environ[preloaded.SHARED_SOCKET]).is_socket()
