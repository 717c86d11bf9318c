"""Names that the bench and its worker share; a separate module, since importing the worker's starts one."""

STAMP = "@now"
"""A scripted token that becomes the time at which the engine emitted it."""

STAMPED_WORKER_APP = "tests.bench.stamped_worker:app"
