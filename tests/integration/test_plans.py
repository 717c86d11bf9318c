"""Plans that Postgres makes in a quiet hour, with next to no open rows, must do for a busy one."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final

import asyncpg

from models.tables import WITHOUT_STATISTICS
from nova_workers import domain, ledger
from nova_workers.base.vocabulary import sql_list
from nova_workers.ledger.named_sql import compile_statement

_STATEMENT = re.compile(r"\s*(WITH|SELECT|UPDATE|INSERT|DELETE)\b")
_SQL_MODULE = re.compile(r"nova_workers\.(ledger|domain\.\w+\.sql)\b")
_INDEX_SCAN = re.compile(r"(?:Index (?:Only )?Scan using|Bitmap Index Scan on) (\S+)")

_ALL_OPEN: Final = "It is about all open rows."
_ALL_RUNNING: Final = "Running runs are at most as many as there are worker slots."
_ONCE: Final = "Once for many rows."
_WHOLE: Final[Mapping[str, str]] = {
    "agents.moves._LOCK_THREADS": _ONCE,
    "agents.renames._RUNNING": _ALL_RUNNING,
    "overview.overdue._OVERDUE": _ALL_OPEN,
    "runs.cancel._WITHDRAW_OF_AGENT": _ONCE,
    "runs.claim._CLAIM_BELOW_CAPS": _ALL_RUNNING,
    "runs.claim._CLAIM_BELOW_CAPS_IN_OUTAGE": _ALL_RUNNING,
    "runs.fairness._ENTITLED": _ALL_RUNNING,
    "runs.fairness._UNDER_CAPS": _ALL_RUNNING,
    "runs.fleet._FRONT": _ALL_OPEN,
    "runs.fleet._OPEN": _ALL_OPEN,
    "runs.holds._HOLD_ALIKE": _ALL_OPEN,
    "runs.leases._OVERDUE": _ONCE,
    "runs.leases._RECOVER": _ALL_RUNNING,
    "runs.queued._COUNT": _ALL_OPEN,
    "runs.lists._THESE": _ALL_RUNNING,
    "runs.reads._GET": _ALL_RUNNING,
    "runs.reads._LIST_OF_THREAD": _ALL_RUNNING,
    "runs.top._LONGEST": _ALL_RUNNING,
    "runs.workers._FORGET_LOST": _ALL_RUNNING,
    "runs.workers._RECOVER": _ALL_RUNNING,
    "triggers.outcomes._SETTLE": _ALL_OPEN,
    "upkeep.restored._DROP_PENDING": _ALL_OPEN,
    "upkeep.restored._RELEASE_EFFECTS": _ALL_OPEN,
    "upkeep.restored._REQUEUE": _ALL_OPEN,
    "upkeep.retention._WALK": _ONCE,
    "waits.release._STUCK": _ALL_OPEN,
}
"""Statements that may read an index of open rows from one end to the other, and why."""

_QUIET = """
WITH tenant AS (
    INSERT INTO tenants (id, name) VALUES ('ten_default', 'Default') RETURNING id
), thread AS (
    INSERT INTO threads (id, tenant_id, agent_id, next_seq)
    SELECT 'thr_' || i, tenant.id, 'nova', 2 FROM tenant, generate_series(1, 3000) i
    RETURNING id, tenant_id, agent_id
), run AS (
    INSERT INTO runs (id, tenant_id, thread_id, agent_id, seq, content, status, finished_at)
    SELECT 'run_' || id, tenant_id, id, agent_id, 1, '[]', 'succeeded', now() FROM thread
    RETURNING id, tenant_id, thread_id
)
INSERT INTO effects (id, tenant_id, run_id, thread_id, kind, position, status, done_at)
SELECT 'eff_' || id, tenant_id, id, thread_id, 'embeddings', 2, 'done', now() FROM run
"""
_NEW = """
WITH tenant AS (
    INSERT INTO tenants (id, name) VALUES ('ten_default', 'Default') RETURNING id
)
INSERT INTO threads (id, tenant_id, agent_id, next_seq)
SELECT 'thr_' || i, tenant.id, 'nova', 2 FROM tenant, generate_series(1, 2) i
"""
_OPEN_INDEXES = f"""
SELECT indexrelid::regclass::text AS name FROM pg_index
 WHERE indpred IS NOT NULL AND indrelid::regclass::text IN {sql_list(WITHOUT_STATISTICS)}
   AND pg_get_expr(indpred, indrelid) ~ '(status|state) (=|<>)'
"""


_TABLES = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"


def _statements() -> Iterator[tuple[str, str]]:
    """Yield the constants that are statements, of every home and of the ledger, with their names."""
    modules = (
        *pkgutil.walk_packages(ledger.__path__, "nova_workers.ledger."),
        *pkgutil.walk_packages(domain.__path__, "nova_workers.domain."),
    )
    for module in modules:
        if not _SQL_MODULE.match(module.name):
            continue
        home = module.name.removeprefix("nova_workers.").removeprefix("domain.").replace(".sql", "", 1)
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, str) and _STATEMENT.match(value):
                yield f"{home}.{name}", value


async def test_a_look_up_by_key_never_reads_all_open_rows(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    await connection.execute(_QUIET)
    # Plans depend on the sizes of tables and indexes, and other tests have left the files of rows that are deleted.
    tables = ", ".join(row[0] for row in await connection.fetch(_TABLES))
    await connection.execute(f"VACUUM (FULL, ANALYZE) {tables}")
    open_rows = {row[0] for row in await connection.fetch(_OPEN_INDEXES)}
    assert {"ix_runs__queue", "ix_runs__open", "uq_runs__running_thread"} <= open_rows
    # As from the sixth execution on.
    await connection.execute("SET plan_cache_mode = force_generic_plan")
    plans: dict[str, list[str]] = {}
    for name, statement in _statements():
        try:
            text, parameters = compile_statement(statement)
            await connection.execute(f"PREPARE looked_at AS {text}")
        except (asyncpg.PostgresError, ValueError):
            # A part of statements, or a template of one.
            continue
        nulls = f"({', '.join(['NULL'] * len(parameters))})" if parameters else ""
        plans[name] = [row[0] for row in await connection.fetch(f"EXPLAIN (COSTS OFF) EXECUTE looked_at{nulls}")]
        await connection.execute("DEALLOCATE looked_at")
    await connection.close()
    assert len(plans) > 400
    whole = {
        name
        for name, plan in plans.items()
        for line, following in zip(plan, [*plan[1:], ""], strict=True)
        if (scan := _INDEX_SCAN.search(line)) and scan[1] in open_rows and "Index Cond" not in following
    }
    found = "\n\n".join("\n".join([name, *plans[name]]) for name in sorted(whole - set(_WHOLE)))
    assert not found, f"These read all open rows to find some of them.\n{found}"


async def test_words_are_indexed_by_a_plan_of_a_new_fleet_without_a_read_of_all_threads(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    await connection.execute(_NEW)
    # Autovacuum does so within a minute of the first messages.
    await connection.execute("ANALYZE threads, turns, messages, message_texts")
    # Tables of one page are read whole, and these grow while the plan is kept.
    await connection.execute("SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off")
    text, parameters = compile_statement(dict(_statements())["search.embeddings._SAVE_TEXTS"])
    await connection.execute(f"PREPARE looked_at AS {text}")
    nulls = ", ".join(["NULL"] * len(parameters))
    plan = [row[0] for row in await connection.fetch(f"EXPLAIN (COSTS OFF) EXECUTE looked_at({nulls})")]
    await connection.close()
    scans = [line.strip() for line, following in pairwise(plan) if _is_whole(line, following)]
    assert not [scan for scan in scans if " on threads " in scan], "\n".join(plan)


def _is_whole(line: str, following: str) -> bool:
    return "Scan" in line and "Function Scan" not in line and "Cond:" not in following
