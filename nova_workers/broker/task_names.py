"""The names of our Celery tasks, for processes that send them without loading Celery."""

from typing import Final

TASK_RUN_AGENT: Final = "nova.run_agent"
TASK_RUN_EFFECTS: Final = "nova.run_effects"
TASK_DELIVER: Final = "nova.deliver"
TASK_RECONCILE: Final = "nova.reconcile"
TASK_UPKEEP: Final = "nova.upkeep"
TASK_BACKFILL: Final = "nova.backfill"
TASK_RETENTION: Final = "nova.retention"
TASK_PROBE_PROVIDERS: Final = "nova.probe_providers"
TASK_RANK_MODELS: Final = "nova.rank_models"
TASK_SEAL_AUDIT: Final = "nova.seal_audit"
TASK_ADVANCE_EVALUATIONS: Final = "nova.advance_evaluations"
TASK_SWEEP_ORCHESTRATIONS: Final = "nova.sweep_orchestrations"
TASK_WORK_TASKS: Final = "nova.work_tasks"
TASK_FIRE_TRIGGERS: Final = "nova.fire_triggers"
