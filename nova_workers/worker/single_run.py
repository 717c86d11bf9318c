"""The processes of suspect runs, which a worker starts: ``python -m nova_workers.worker.single_run``.

That is a fork server. Each of its children executes the next run of one thread and exits. The child's connection has
the doorbell in a line; then perhaps `MAKE_WAY`; and ends when the worker drains or is gone. Then the child drains too,
as on SIGTERM.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Final

import orjson
import structlog
import uvloop

from nova_workers.base.config import Settings, load_settings
from nova_workers.base.observability.logging import configure_logging
from nova_workers.base.program import exclude_from_collections
from nova_workers.bootstrap.worker import WorkerServices, build_worker
from nova_workers.contracts.runs import Doorbell
from nova_workers.domain.runs.rules.suspects import MAKE_WAY
from nova_workers.worker.fork_server import forked_connection

_log = structlog.get_logger(__name__)

_CLOSE_S: Final = 5.0
_EXIT_DEADLINE: Final = 70
"""Exit code when the watchdog ended a drain, as of a worker."""
_CONNECTIONS: Final = 3
"""Most connections to Postgres: the run has one at a time, its tools and its lease another each."""
_OOM_SCORE: Final = Path("/proc/self/oom_score_adj")
_MOST_OOM_SCORE: Final = 1000
_CHUNK_BYTES: Final = 4096


def main() -> None:
    """Fork children that execute a run each. A child exits with 1 if it failed itself, and not if its run failed."""
    _raise_oom_score()
    connection = forked_connection()
    _raise_oom_score()
    lines = _lines(connection)
    first = next(lines, None)
    if first is None:
        return
    bell = Doorbell(*orjson.loads(first))
    settings = load_settings()
    configure_logging(settings.telemetry, "worker")
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_SingleRun(_for_one_run(settings), bell, lines).execute())
    except Exception as error:
        # The head of the process: its run is recovered by its session.
        _log.exception("suspect.failed", run_id=bell.run_id, thread_id=bell.thread_id)
        raise SystemExit(1) from error


class _SingleRun:
    def __init__(self, settings: Settings, bell: Doorbell, lines: Generator[bytes]) -> None:
        self._settings = settings
        self._bell = bell
        self._lines = lines
        self._services: WorkerServices | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining = False

    async def execute(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._services = services = build_worker(self._settings, is_single_run=True)
        exclude_from_collections()
        self._loop.add_signal_handler(signal.SIGTERM, self._drain)
        threading.Thread(target=self._listen, name="connection", daemon=True).start()
        try:
            # The session first: a run that ends this process at once is recovered by it.
            await services.lost_workers.hold()
            await services.start()
            await services.executor.answer_alone(self._bell)
        finally:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await services.aclose()

    def _listen(self) -> None:
        assert self._loop is not None  # noqa: S101 - set before this thread starts
        assert self._services is not None  # noqa: S101 - likewise
        for line in self._lines:
            if line == MAKE_WAY:
                self._loop.call_soon_threadsafe(self._services.executor.make_way)
        self._loop.call_soon_threadsafe(self._drain)
        # Here too, since the worker may be gone and the loop blocked by the run.
        self._watch_deadline()

    def _drain(self) -> None:
        if self._draining:
            return
        self._draining = True
        assert self._services is not None  # noqa: S101 - set before this is called
        threading.Thread(target=self._watch_deadline, name="watchdog", daemon=True).start()
        executor, grace_s = self._services.executor, self._settings.worker.drain_grace_s
        _log.info("suspect.draining", run_id=self._bell.run_id, grace_s=grace_s)
        executor.drain()
        asyncio.get_running_loop().call_later(grace_s, executor.stop_in_mid_step)

    def _watch_deadline(self) -> None:
        time.sleep(self._settings.worker.drain_deadline_s)
        os._exit(_EXIT_DEADLINE)


def _for_one_run(settings: Settings) -> Settings:
    """Return the worker's settings without what only the worker itself has: its port and its probes."""
    worker = settings.worker.model_copy(update={"metrics_port": 0, "heartbeat_dir": None})
    pool = min(settings.database_pool, _CONNECTIONS)
    return settings.model_copy(update={"worker": worker, "database_pool": pool})


def _raise_oom_score() -> None:
    """Let the kernel end this process before others when memory is short: children first, then what forks them.

    Anyone may raise the score of a process.
    """
    with contextlib.suppress(OSError, ValueError):
        score = min(int(_OOM_SCORE.read_text()) + _MOST_OOM_SCORE // 2, _MOST_OOM_SCORE)
        _OOM_SCORE.write_text(str(score))


def _lines(connection: socket.socket) -> Generator[bytes]:
    """Yield lines until the other end is closed. Unbuffered: a thread that waits in a buffer blocks the exit."""
    rest = b""
    while chunk := connection.recv(_CHUNK_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line + b"\n"


if __name__ == "__main__":
    main()
