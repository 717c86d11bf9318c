"""A forked process becomes ``python -m MODULE ARGUMENT…``: what `subprocess` and the command line would do."""

from __future__ import annotations

import io
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def become_module(module: str, arguments: Sequence[str], *, env: Mapping[str, str], cwd: Path | str) -> None:
    """Run a module as the main program. Its standard streams are those of the process.

    Args:
        module: Its name.
        arguments: What follows the name.
        env: The whole environment.
        cwd: The working directory.
    """
    # Python chose their buffers by what the server has.
    sys.stdin = io.TextIOWrapper(open(0, "rb", closefd=False), encoding="utf-8")
    sys.stdout, sys.stderr = _writer(1), _writer(2, errors="backslashreplace")
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _writer(number: int, errors: str = "strict") -> io.TextIOWrapper:
    lines = number == 2 or os.isatty(number)
    return io.TextIOWrapper(open(number, "wb", closefd=False), encoding="utf-8", errors=errors, line_buffering=lines)
