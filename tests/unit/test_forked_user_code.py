"""A forked process of user code is as one that Python starts, and ends with the program that stands for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes.inspection import wait_until_gone
from tests.support.processes.user_code import forked_python

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="no other kernel ends a process with its parent")

_LISTING = ("-P", "-m", "nova_workers.sdk.serve", "--list")


def _source(folder: Path, code: str) -> str:
    (folder / "tools").mkdir()
    (folder / "tools" / "shop.py").write_text(code)
    return f"{folder}/"


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        (
            "print(os.getcwd(), sys.argv[1:], sorted(os.environ.items()), [*sys.path], sys.stdin.read(), flush=True)\n"
            "os.system('echo child')\nprint(sys.stdout.encoding, sys.stderr.errors, sys.stdout.line_buffering)\n",
            0,
        ),
        ("sys.stderr.write('last words')\nsys.stderr.flush()\nos._exit(7)\n", 7),
        ("os.kill(os.getpid(), 9)\n", -9),
    ],
    ids=["what it sees", "exit", "signal"],
)
def test_a_forked_process_has_and_leaves_what_one_of_python_does(tmp_path: Path, code: str, exit_code: int) -> None:
    source = _source(tmp_path, f"import os, sys\n{code}")
    ends = [
        subprocess.run(
            [python, *_LISTING, source],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={"KEPT": "1"},
            input="nothing of it is for the code",
        )
        for python in (sys.executable, forked_python())
    ]
    real, forked = [(end.returncode, end.stdout, end.stderr) for end in ends]
    assert forked == real
    assert real[0] == exit_code


def test_a_forked_process_and_what_it_started_end_with_their_program(tmp_path: Path) -> None:
    code = "import os, subprocess, sys, time\nchild = subprocess.Popen(['sleep', '3600'])\n"
    code += "print(os.getpid(), child.pid, flush=True)\ntime.sleep(3600)\n"
    command = [forked_python(), *_LISTING, _source(tmp_path, code)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as program:
        assert program.stderr is not None
        started = [int(pid) for pid in program.stderr.readline().split()]
        program.kill()
    assert len(started) == 2
    assert not wait_until_gone(started, timeout_s=30)
