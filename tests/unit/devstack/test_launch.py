"""The program that gives up root for a server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nova_workers.devstack import launch

_UNPRIVILEGED = 65534

_ASKS = "import os, sys; print(os.getuid(), os.access(sys.argv[1], os.X_OK))"

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="Only root on Linux gives up its rights."
)


def test_a_server_finds_programs_in_a_folder_that_only_root_enters(tmp_path: Path) -> None:
    program = tmp_path / "private" / "program"
    program.parent.mkdir(mode=0o700)
    program.touch(mode=0o755)
    user = ["--user", f"{_UNPRIVILEGED}:{_UNPRIVILEGED}", "--override-access"]
    command = [sys.executable, "-I", launch.__file__, "--parent", str(os.getpid()), *user, "--"]
    done = subprocess.run(
        [*command, "/proc/self/exe", "-I", "-c", _ASKS, str(program)], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == [str(_UNPRIVILEGED), "True"], done.stderr
