"""The ticks. Each is safe to run twice, or never: what is due stands in Postgres until somebody does it."""

from typing import Any

from nova_workers.config import RunSettings
from nova_workers.runs.broker import TASK_RECONCILE, TASK_UPKEEP

__all__ = ["beat_schedule"]

_UPKEEP_S = 600.0


def beat_schedule(runs: RunSettings) -> dict[str, dict[str, Any]]:
    """Return Celery's schedule. A tick that nobody took before the next one is due expires: the next does its work."""
    every_s = runs.reconcile_every_s
    return {
        "reconcile": {
            "task": TASK_RECONCILE,
            "schedule": every_s,
            "options": {"queue": "system", "expires": every_s * 2},
        },
        "upkeep": {
            "task": TASK_UPKEEP,
            "schedule": _UPKEEP_S,
            "options": {"queue": "system", "expires": _UPKEEP_S},
        },
    }
