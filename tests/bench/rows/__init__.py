"""The rows of the table: each measures one promise, on a stage of its own."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from tests.bench.figures import Result
from tests.bench.rows.backfill import measure_backfill
from tests.bench.rows.cached import measure_cached
from tests.bench.rows.changes import measure_changes
from tests.bench.rows.claims import measure_claims
from tests.bench.rows.code import measure_code
from tests.bench.rows.doors import measure_doors
from tests.bench.rows.fairness import measure_fairness
from tests.bench.rows.first import measure_first
from tests.bench.rows.floor import measure_floor
from tests.bench.rows.innocents import measure_innocents
from tests.bench.rows.latency import measure_accept, measure_first_event, measure_wait
from tests.bench.rows.memory import measure_memory
from tests.bench.rows.notice import measure_notice
from tests.bench.rows.orders import measure_orders
from tests.bench.rows.projects import measure_init, measure_plan
from tests.bench.rows.recovery import measure_recovery
from tests.bench.rows.rename import measure_rename
from tests.bench.rows.scaling import measure_scaling
from tests.bench.rows.search import measure_search
from tests.bench.rows.start import measure_start
from tests.bench.rows.tokens import measure_tokens
from tests.bench.rows.tools import measure_tools
from tests.bench.rows.trees import measure_trees
from tests.bench.rows.triggers import measure_triggers
from tests.bench.rows.turns import measure_concurrent, measure_many_concurrent, measure_turns
from tests.bench.stage import Bench

ROWS: Final[Mapping[str, Callable[[Bench], Awaitable[Result]]]] = {
    "floor": measure_floor,
    "accept": measure_accept,
    "wait": measure_wait,
    "first-event": measure_first_event,
    "tokens": measure_tokens,
    "doors": measure_doors,
    "tools": measure_tools,
    "code": measure_code,
    "turns": measure_turns,
    "concurrent-200": measure_concurrent,
    "concurrent-1000": measure_many_concurrent,
    "memory": measure_memory,
    "recovery": measure_recovery,
    "claims": measure_claims,
    "changes": measure_changes,
    "fairness": measure_fairness,
    "innocents": measure_innocents,
    "cached": measure_cached,
    "search": measure_search,
    "backfill": measure_backfill,
    "triggers": measure_triggers,
    "trees": measure_trees,
    "orders": measure_orders,
    "rename": measure_rename,
    "plan": measure_plan,
    "start": measure_start,
    "first": measure_first,
    "init": measure_init,
    "notice": measure_notice,
    "scaling": measure_scaling,
}
"""By name, in the table's order."""
