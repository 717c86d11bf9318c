"""Processes of a fleet that are forked from a server end with the test process, however it ends."""

from __future__ import annotations

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
@pytest.mark.parametrize("shared", [False, True], ids=["with its own fork server", "with the one of all test workers"])
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


def test_all_test_workers_share_a_fork_server() -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        pytest.skip("a single test process has its own")
    assert Path(os.environ[preloaded.SHARED_SOCKET]).is_socket()
