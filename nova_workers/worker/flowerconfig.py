"""What Flower shows: ``celery … flower --conf=<this file>``. Tornado executes it; each name is an option of Flower.

A doorbell carries the ids of its run and thread as keyword arguments, so Flower sees them on the ``task-received``
event of every task. Flower keeps what it heard in memory: events are lossy, and Postgres is the truth.
"""

from typing import Any

# The first column says which run of which thread; `format_task` writes it.
tasks_columns = "name,kwargs,state,received,runtime,worker,uuid"
natural_time = True

persistent = False

# Shutting workers down, revoking and resizing pools would go past the fleet's own drain and cancel.
read_only = True


def format_task(task: Any) -> Any:
    """Show the ids as ``run_… · thr_…`` in place of a Python dict. Gets a copy of the task."""
    ids = [part for part in str(task.kwargs or "").replace("'", '"').split('"') if part.startswith(("run_", "thr_"))]
    named = [value for value in ids if value not in {"run_id", "thread_id"}]
    if named:
        task.kwargs = " · ".join(named)
    return task
