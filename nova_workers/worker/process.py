"""The lifecycle of a worker process: start, drain, stop."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Collection, Coroutine
from typing import Any

import structlog

from nova_workers.base.config import Settings
from nova_workers.base.errors import ConfigurationError, Unavailable
from nova_workers.base.observability.lines import write_lines_at_once
from nova_workers.base.observability.metrics import Metrics
from nova_workers.base.open_files import allow_files
from nova_workers.base.program import exclude_from_collections
from nova_workers.base.stopping import stop_tasks
from nova_workers.base.vocabulary import RUN_QUEUES
from nova_workers.bootstrap.worker import WorkerServices, build_worker
from nova_workers.worker.loop import LoopThread
from nova_workers.worker.machine_watch import MachineWatch
from nova_workers.worker.presence import Presence, touch
from nova_workers.worker.readiness import Readiness
from nova_workers.worker.warming import Warming

_log = structlog.get_logger(__name__)

_CLOSE_S = 5.0
_SETTLE_S = 0.75
"""After a connection to the broker: a server that fails over may break several in a row."""
_FILES_PER_SLOT = 2
"""Descriptors of a turn: its connection to a model, and to a tool or for a file."""
_OTHER_FILES = 256
"""Descriptors for all but turns: the database, Redis, logs, child processes."""
_EXIT_DEADLINE = 70
"""Exit code when the watchdog ended a drain: a run did not stop in time, so its lease will expire."""


class WorkerProcess:
    """Owns the loop and the services of one worker process.

    During a drain there are no new claims, and every run stops at its next step boundary and is requeued. Runs that are
    still active after the grace period are stopped within their step. A watchdog ends the process before the platform
    would kill it.
    """

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self.thread = LoopThread()
        self._services: WorkerServices | None = None
        self._presence: Presence | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._ringing: asyncio.Task[None] | None = None
        self._executes_runs = True

    @property
    def services(self) -> WorkerServices:
        """The services, from `start` on."""
        assert self._services is not None, "the worker process was not started"  # noqa: S101 - a defect, not an input
        return self._services

    def takes_work(self) -> bool:
        """Return whether the process can work on the database's schema, as far as is known."""
        return self._services is not None and self._services.schema.fits

    def start(self, *, node: str, queues: tuple[str, ...], slots: int) -> None:
        """Start the loop and everything that runs on it."""
        self.thread.start()
        self.thread.call(self._open(node, queues, slots))

    def queues_of_code(self, queues: Collection[str]) -> tuple[str, ...]:
        """Return the queues that are for workers with the same code of users, beside those that it consumes.

        Args:
            queues: Those that it consumes: it takes no runs of a queue that is not among them.
        """
        consumed = {queue.partition(".")[0] for queue in queues}
        installs = self.services.executor.installs
        return tuple(queue for queue in installs.queues if queue.partition(".")[0] in consumed)

    async def execute(self, work: Coroutine[Any, Any, object]) -> None:
        """Do the work of a task. What a database that is away prevents is done by the next tick."""
        try:
            await work
        except Unavailable as error:
            _log.warning("task.not_done", outage="postgres", work=work.__qualname__, error=str(error))

    def heartbeat(self) -> None:
        """Record that Celery's own loop is alive."""
        touch(self._settings.worker.heartbeat_dir, "hub")

    def broker_connected(self) -> None:
        """Ring for what the last connection may have lost. Called on Celery's own thread."""
        self.thread.loop.call_soon_threadsafe(self._ring_lost_soon)

    def warm_up(self) -> None:
        """Load in the background what the first turns need. Called on Celery's own thread, when the worker is ready."""
        self.thread.loop.call_soon_threadsafe(self._warm_up)

    def begin_drain(self) -> None:
        """Start the drain. Runs in a signal handler, so it only sets flags and schedules work."""
        threading.Thread(target=self._watch_deadline, name="watchdog", daemon=True).start()
        self.thread.loop.call_soon_threadsafe(self._drain)

    def stop(self) -> None:
        """Close the services and the loop, after every Celery task has ended."""
        write_lines_at_once()
        self.thread.call(self.services.suspects.ended())
        self.thread.call(self._close(), _CLOSE_S)
        self.thread.stop(_CLOSE_S)

    async def _open(self, node: str, queues: tuple[str, ...], slots: int) -> None:
        try:
            touch(self._settings.worker.heartbeat_dir, "loop")
        except OSError as error:
            raise ConfigurationError(
                f"NOVA_WORKER__HEARTBEAT_DIR is {str(self._settings.worker.heartbeat_dir)!r}, where no file can be "
                f"written ({error.strerror}). Set it to a folder that this user may write."
            ) from error
        _allow_files_for(slots)
        services = build_worker(self._settings, self._metrics)
        self._services = services
        services.executor.slots = services.effects.slots = slots
        # Of a pool, its name follows.
        self._executes_runs = any(queue.partition(".")[0] in RUN_QUEUES for queue in queues)
        await services.start()
        exclude_from_collections()
        machine = MachineWatch(self._settings.workspace_root)
        self._presence = Presence(
            services.redis,
            services.clock,
            worker_id=services.worker_id,
            queues=queues,
            slots=slots,
            sandbox=services.sandbox,
            trial=services.sandbox_trial,
            busy=lambda: len(services.keeper.held),
            suspects=lambda: services.suspects.executing,
            draining=lambda: services.executor.draining,
            heartbeat_dir=self._settings.worker.heartbeat_dir,
            warnings=lambda: machine.warnings,
            node=node,
            installation=services.executor.installs.installation,
        )
        services.metrics.worker_slots.set(slots)
        services.metrics.runs_in_flight.set_function(lambda: len(services.keeper.held))
        self._tasks.append(asyncio.create_task(self._presence.run(), name="presence"))
        self._tasks.append(asyncio.create_task(machine.run(), name="machine_watch"))
        self._tasks.append(asyncio.create_task(services.drain_orders.run(self._end_itself), name="drain_orders"))
        readiness = Readiness(services.database, services.redis, services.metrics, self._settings.worker.heartbeat_dir)
        self._tasks.append(asyncio.create_task(readiness.run(), name="readiness"))
        _log.info(
            "worker.started",
            worker_id=services.worker_id,
            node=node,
            queues=queues,
            slots=slots,
            sandbox=services.sandbox,
        )

    def _end_itself(self) -> None:
        """Drain as on SIGTERM of the platform, after which the process ends."""
        if not self.services.executor.draining:
            os.kill(os.getpid(), signal.SIGTERM)

    def _warm_up(self) -> None:
        if not self._executes_runs:
            return
        self._tasks.append(asyncio.create_task(Warming(self.services).run(), name="warming"))

    def _drain(self) -> None:
        write_lines_at_once()
        services = self.services
        services.executor.drain()
        self._tasks.append(asyncio.create_task(services.executor.installs.withdraw(), name="withdraw_installs"))
        services.suspects.drain()
        services.effects.drain()
        services.model_judge.drain()
        services.backfill.drain()
        services.retention.drain()
        services.deliveries.drain()
        grace_s = self._settings.worker.drain_grace_s
        _log.info("worker.draining", runs=len(services.keeper.held), grace_s=grace_s)
        asyncio.get_running_loop().call_later(grace_s, services.executor.stop_in_mid_step)

    def _ring_lost_soon(self) -> None:
        if self._ringing is not None:
            self._ringing.cancel()
        self._ringing = asyncio.create_task(self._ring_lost(), name="ring_lost")

    async def _ring_lost(self) -> None:
        await asyncio.sleep(_SETTLE_S)
        try:
            await self.services.reconciler.ring_lost()
        except Unavailable as error:
            _log.warning("doorbell.not_searched", outage="postgres", error=str(error))

    def _watch_deadline(self) -> None:
        time.sleep(self._settings.worker.drain_deadline_s)
        _log.error("worker.drain_overran", held=len(self.services.keeper.held))
        os._exit(_EXIT_DEADLINE)

    async def _close(self) -> None:
        if self._presence is not None:
            await self._presence.withdraw()
        await self.services.drain_orders.record_end()
        await stop_tasks([*self._tasks, *([self._ringing] if self._ringing else [])])
        await self.services.aclose()
        _log.info("worker.stopped")


def _allow_files_for(slots: int) -> None:
    wanted = slots * _FILES_PER_SLOT + _OTHER_FILES
    if (allowed := allow_files(wanted)) < wanted:
        _log.warning(
            "worker.few_files",
            slots=slots,
            allowed=allowed,
            wanted=wanted,
            hint="Raise the hard limit of open files (ulimit -Hn), or lower NOVA_WORKER__CONCURRENCY.",
        )
