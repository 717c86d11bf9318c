"""Flower's configuration: ``celery … flower --conf=<this file>``. Tornado executes it; each name is an option.

A doorbell carries the ids of its run and thread as keyword arguments, so Flower sees them on the ``task-received``
event of every task. Flower keeps events in memory; they are lossy, and Postgres is authoritative.
"""

import json
import os
from typing import Any

from nova_workers.base.program import collect_as_usual
from nova_workers.worker.flower_wall import stand_before_flower

# Not an option of the command line, which every user of the machine can read. Flower does not start without it.
basic_auth = [f"nova:{os.environ['NOVA_FLOWER__PASSWORD']}"]
stand_before_flower(basic_auth[0], json.loads(os.environ.get("NOVA_ALLOWED_HOSTS") or "[]"))

# The first column names the run and thread; `format_task` writes it.
tasks_columns = "name,kwargs,state,received,runtime,worker,uuid"
natural_time = True

persistent = False

# Each worker process has a name of its own: those that ended make room for the next ones.
purge_offline_workers = 600

# Celery's record of a task refers to itself, so that only the collector frees those which Flower has dropped.
collect_as_usual()

# Shutting down workers, revoking tasks and resizing pools would bypass the fleet's own drain and cancel.
read_only = True


def format_task(task: Any) -> Any:
    """Show the ids as ``run_… · thr_…`` instead of a Python dict. Receives a copy of the task."""
    ids = [part for part in str(task.kwargs or "").replace("'", '"').split('"') if part.startswith(("run_", "thr_"))]
    named = [value for value in ids if value not in {"run_id", "thread_id"}]
    if named:
        task.kwargs = " · ".join(named)
    return task
