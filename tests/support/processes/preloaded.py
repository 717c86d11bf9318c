"""Processes of a fleet that begin with its modules imported: importing them anew takes seconds of CPU each time.

`multiprocessing` runs a server process that imports them once, and forks each process from it. From there on it is as
one from the command line: a session, an environment, a log and signals of its own.
"""

from __future__ import annotations

import atexit
import gc
import multiprocessing
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from nova_workers.devstack.launch import die_with_parent

__all__ = ["PreloadedProcess"]

_MODULES = [
    *("nova_workers.worker.process", "nova_workers.worker.consumer", "beat.schedule", "beat.scheduler"),
    *("api.app", "nova_workers.console.server", "nova_workers.channels.run", "nova_workers.channels.telegram.serve"),
    *("celery.__main__", "celery.bin.celery", "celery.fixups.django", "celery.concurrency.thread", "billiard.pool"),
    *("celery.apps.worker", "celery.apps.beat", "uvicorn.__main__", "uvicorn.lifespan.on", "uvicorn.loops.uvloop"),
    *("uvicorn.protocols.http.httptools_impl", "uvicorn.protocols.websockets.websockets_sansio_impl"),
    *("claude_agent_sdk", "genai_prices.data", "httpcore2", "jsonschema", "valkey.asyncio"),
]
"""What these processes import sooner or later, except the modules that read the environment."""


class PreloadedProcess:
    """A process that runs ``python -m MODULE ARGUMENT…``, with the part of `subprocess.Popen` that a fleet needs."""

    def __init__(self, module: str, arguments: Sequence[str], *, env: Mapping[str, str], log: Path, cwd: Path) -> None:
        log.touch()
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_MODULES)
        self._process = context.Process(target=_run, args=(module, tuple(arguments), dict(env), log, cwd))
        self._process.start()

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        """Return the exit code; None while it runs."""
        return self._process.exitcode

    def wait(self) -> int | None:
        """Wait until it ended, and return its exit code."""
        self._process.join()
        return self._process.exitcode


def _run(module: str, arguments: tuple[str, ...], env: dict[str, str], log: Path, cwd: Path) -> None:
    """Become the process: what `subprocess` and the command line would do."""
    os.setsid()
    die_with_parent(os.getppid())
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    # Collections would copy every page of the modules.
    gc.freeze()
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        # `multiprocessing` leaves them out.
        atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
