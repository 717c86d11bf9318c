"""The ticks. A tick may run twice or be lost: due work stays in Postgres until it is done."""

from typing import Any

from nova_workers.base.config import Settings
from nova_workers.broker.task_names import (
    TASK_ADVANCE_EVALUATIONS,
    TASK_BACKFILL,
    TASK_DELIVER,
    TASK_FIRE_TRIGGERS,
    TASK_PROBE_PROVIDERS,
    TASK_RANK_MODELS,
    TASK_RECONCILE,
    TASK_RETENTION,
    TASK_SEAL_AUDIT,
    TASK_SWEEP_ORCHESTRATIONS,
    TASK_UPKEEP,
    TASK_WORK_TASKS,
)

_ADVANCE_S = 2.0
"""Evaluations: in this time their open runs end, or nearly so."""
_PROBE_S = 30.0
"""How old the report on providers may be, by which models are chosen: a quarter of its life in Redis."""
_RANK_S = 3_600.0
"""More often than rankings are computed, once a day: a schedule without a file starts again with each beat process."""
_SEAL_S = 2.0
"""A record of the audit log is in its chain within five seconds, also where a tick waits for others."""
_SWEEP_S = 5.0
"""Open orchestrations: lost reports, deadlocks, time budgets."""
_UPKEEP_S = 600.0


def beat_schedule(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return Celery's schedule.

    Ticks do not expire: Celery compares an expiry set by beat's clock with the worker's clock, so if one of them is an
    hour off, every tick would be dropped. `TickScheduler` keeps them from piling up.
    """
    reconcile_s, work_s = settings.runs.reconcile_every_s, settings.tasks.tick_every_s
    deliver_s = settings.delivery.every_s
    backfill_s, retention_s = settings.effects.backfill_every_s, settings.retention.every_s
    fire_s = settings.triggers.tick_every_s
    return {
        "advance_evaluations": _tick(TASK_ADVANCE_EVALUATIONS, _ADVANCE_S),
        "backfill": _tick(TASK_BACKFILL, backfill_s),
        "deliver": _tick(TASK_DELIVER, deliver_s),
        "fire_triggers": _tick(TASK_FIRE_TRIGGERS, fire_s),
        "probe_providers": _tick(TASK_PROBE_PROVIDERS, _PROBE_S),
        "rank_models": _tick(TASK_RANK_MODELS, _RANK_S),
        "reconcile": _tick(TASK_RECONCILE, reconcile_s),
        "retention": _tick(TASK_RETENTION, retention_s),
        "seal_audit": _tick(TASK_SEAL_AUDIT, _SEAL_S),
        "sweep_orchestrations": _tick(TASK_SWEEP_ORCHESTRATIONS, _SWEEP_S),
        "upkeep": _tick(TASK_UPKEEP, _UPKEEP_S),
        "work_tasks": _tick(TASK_WORK_TASKS, work_s),
    }


def _tick(task: str, every_s: float) -> dict[str, Any]:
    return {"task": task, "schedule": every_s, "options": {"queue": "system"}}
