"""The Celery app of a worker process: ``celery -A nova_workers.worker.app worker``.

Each task is a doorbell: a coroutine of `runs` or `effects`, on the process's one loop (`nova_workers.worker.pool`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import structlog
from celery import Celery, signals
from prometheus_client import CollectorRegistry

from nova_workers.base.config import Settings, load_settings
from nova_workers.base.errors import ConfigurationError
from nova_workers.base.observability.foreign import ForeignMessages
from nova_workers.base.observability.lines import gather_lines
from nova_workers.base.observability.logging import configure_logging
from nova_workers.base.observability.metrics import Metrics
from nova_workers.broker.celery_app import build_celery
from nova_workers.broker.task_names import (
    TASK_ADVANCE_EVALUATIONS,
    TASK_BACKFILL,
    TASK_DELIVER,
    TASK_FIRE_TRIGGERS,
    TASK_PROBE_PROVIDERS,
    TASK_RANK_MODELS,
    TASK_RECONCILE,
    TASK_RETENTION,
    TASK_RUN_AGENT,
    TASK_RUN_EFFECTS,
    TASK_SEAL_AUDIT,
    TASK_SWEEP_ORCHESTRATIONS,
    TASK_UPKEEP,
    TASK_WORK_TASKS,
)
from nova_workers.contracts.runs import Doorbell
from nova_workers.worker.consumer import CONSUMER, broker_awaited, broker_connected
from nova_workers.worker.pool import delivered_on, loop_pool
from nova_workers.worker.process import WorkerProcess

_log = structlog.get_logger(__name__)


def create_app(settings: Settings) -> Celery:
    """Return the Celery app with its tasks and the hooks of its process."""
    metrics = Metrics(CollectorRegistry())
    celery = build_celery(
        settings.require_redis_url(),
        fail_fast=False,
        name="nova-worker",
        consumed=settings.worker.consumed_queues(),
        foreign=ForeignMessages(metrics),
    )
    process = WorkerProcess(settings, metrics)
    celery.conf.worker_consumer = CONSUMER
    celery.conf.worker_pool = loop_pool(process.thread, takes_work=process.takes_work)
    _add_tasks(celery, process)
    _add_upkeep(celery, process)
    _add_ticks(celery, process)
    _connect_signals(settings, process)
    return celery


def _add_tasks(celery: Celery, process: WorkerProcess) -> None:
    @celery.task(name=TASK_RUN_AGENT)
    async def run_agent(run_id: str, thread_id: str) -> None:
        bell = Doorbell(run_id, thread_id, delivered_on.get())
        await process.execute(process.services.executor.answer(bell))

    @celery.task(name=TASK_RUN_EFFECTS)
    async def run_effects() -> None:
        await process.execute(process.services.run_effects())

    @celery.task(name=TASK_DELIVER)
    async def deliver() -> None:
        await process.execute(process.services.run_deliveries())


def _add_upkeep(celery: Celery, process: WorkerProcess) -> None:
    @celery.task(name=TASK_SEAL_AUDIT)
    async def seal_audit() -> None:
        await process.execute(process.services.audit_seals.tick())

    @celery.task(name=TASK_BACKFILL)
    async def backfill() -> None:
        await process.execute(process.services.backfill.tick())

    @celery.task(name=TASK_RETENTION)
    async def retention() -> None:
        await process.execute(process.services.retention.tick())

    @celery.task(name=TASK_UPKEEP)
    async def upkeep() -> None:
        await process.execute(process.services.reconciler.upkeep())


def _add_ticks(celery: Celery, process: WorkerProcess) -> None:
    @celery.task(name=TASK_RECONCILE)
    async def reconcile() -> None:
        await process.execute(process.services.reconciler.reconcile())

    @celery.task(name=TASK_RANK_MODELS)
    async def rank_models() -> None:
        await process.execute(process.services.learn_about_models())

    @celery.task(name=TASK_PROBE_PROVIDERS)
    async def probe_providers() -> None:
        await process.execute(process.services.provider_probes.tick())

    @celery.task(name=TASK_ADVANCE_EVALUATIONS)
    async def advance_evaluations() -> None:
        await process.execute(process.services.evaluations.tick())

    @celery.task(name=TASK_SWEEP_ORCHESTRATIONS)
    async def sweep_orchestrations() -> None:
        await process.execute(process.services.sweep())

    @celery.task(name=TASK_WORK_TASKS)
    async def work_tasks() -> None:
        await process.execute(process.services.task_scheduler.tick())

    @celery.task(name=TASK_FIRE_TRIGGERS)
    async def fire_triggers() -> None:
        await process.execute(process.services.trigger_ticker.tick())


def _connect_signals(settings: Settings, process: WorkerProcess) -> None:
    @signals.setup_logging.connect(weak=False)
    def set_up_logging(**_: object) -> None:
        configure_logging(settings.telemetry, "worker")

    @signals.worker_init.connect(weak=False)
    def start(sender: Any, **_: object) -> None:
        set_up_logging()  # Celery asks for it only later, and the first line is ours
        queues = tuple(sorted(sender.app.amqp.queues.consume_from))
        try:
            slots = sender.concurrency or settings.worker.concurrency
            process.start(node=str(sender.hostname), queues=queues, slots=slots)
            _consume(sender, process.queues_of_code(queues))
        except ConfigurationError as error:
            _log.error("worker.not_started", error=error.message)
            raise SystemExit(1) from error
        except Exception as error:
            # Celery only logs exceptions of signal handlers: a worker without services would take doorbells.
            _log.exception("worker.not_started")
            raise SystemExit(1) from error

    @signals.worker_ready.connect(weak=False)
    def serve(**_: object) -> None:
        gather_lines()
        process.warm_up()

    @broker_connected.connect(weak=False)
    def ring_lost(**_: object) -> None:
        process.broker_connected()

    @broker_awaited.connect(weak=False)
    @signals.heartbeat_sent.connect(weak=False)
    def beat(**_: object) -> None:
        process.heartbeat()

    @signals.worker_shutting_down.connect(weak=False)
    def drain(**_: object) -> None:
        process.begin_drain()

    @signals.worker_shutdown.connect(weak=False)
    def stop(**_: object) -> None:
        process.stop()


def _consume(worker: Any, queues: Sequence[str]) -> None:
    """Let a worker that is about to start consume further queues."""
    for queue in queues:
        worker.app.amqp.queues.select_add(queue, no_ack=True)


# The entry point for Celery's command line; nothing else imports this module.
app = create_app(load_settings())
