"""Test workers of xdist that begin with all test modules imported, which takes a worker half a minute of CPU.

A fork server imports them as pytest does, and forks each worker (see `fork_server`). Then pytest collects as ever: it
finds each module imported.
"""

from __future__ import annotations

import os
import shlex
import socket
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

from tests.support.processes.fork_server import accepted_connection, fork_server

_INTERPRETER = Path(__file__).with_name("xdist_interpreter.py")


@contextmanager
def forked_interpreter(paths: Sequence[str]) -> Generator[str]:
    """Give the command line of a Python whose processes begin with the test modules of these paths imported."""
    with fork_server(__name__, *paths) as path:
        yield shlex.join([sys.executable, "-IS", str(_INTERPRETER), path])


class _ModulesOnly:
    """A plugin of pytest that leaves each module without tests but for properties: only its import is wanted.

    With the first property, Hypothesis reads the constants of all modules, which takes a third of a collection. Workers
    have them then.
    """

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makeitem(self, obj: object) -> list[pytest.Item] | None:
        # As Hypothesis itself does; pytest must be the first to import it.
        return None if isinstance(obj, FunctionType) and hasattr(obj, "is_hypothesis_test") else []


def _import_tests() -> None:
    # What fails here fails again in the workers, which report it.
    pytest.main(["--collect-only", "-qq", "-n0", *sys.argv[2:]], plugins=[_ModulesOnly()])
    if "tests.support.data.idle_api" in sys.modules:
        # It takes each worker that needs it 3 s.
        sys.modules["tests.support.data.idle_api"].idle_api().openapi()


def _become_worker(connection: socket.socket) -> None:
    _, descriptors, _, _ = socket.recv_fds(connection, 1, 3)
    for stream, descriptor in enumerate(descriptors):
        os.dup2(descriptor, stream)
        os.close(descriptor)
    sys.stdin = open(0, closefd=False)
    sys.stdout = open(1, "w", closefd=False)
    sys.argv = ["-c"]
    # A program without a file: `multiprocessing` imports that of `__main__` in its processes.
    sys.modules["__main__"] = main = ModuleType("__main__")
    # What execnet gives an interpreter to execute.
    exec(eval(sys.stdin.readline()), vars(main))


if __name__ == "__main__":
    _import_tests()
    _become_worker(accepted_connection())
