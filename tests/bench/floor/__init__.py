"""The least run server that the fleet's parts can make: what our own work costs is compared with it, in one run.

FastAPI, Celery, Valkey and raw SQL on Postgres. A run is durable before its answer; one Celery message and two worker
transactions execute it, the first with a lock on the row of its thread, the second with the thread's history; one
pub/sub message tells its end. It has no keys, validation, events, leases, journal or effects, and a crash of its worker
loses runs: it shows the ceiling of the design on a machine, and is no design.
"""

DATABASE = "NOVA_BENCH_FLOOR_DATABASE"
REDIS = "NOVA_BENCH_FLOOR_REDIS"
CHANNEL = "floor:run:"
"""And the id of a run: where its end is published."""
