"""Random trees whose workers crash at random statements: the same outcome, no child lost, none twice, none orphaned.

More, with fresh random examples: `TEST_EXAMPLES=500 pytest tests/integration/orchestration/test_crashes.py`
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import Phase, given
from hypothesis import settings as profile
from hypothesis import strategies as st
from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.base.errors import Unavailable
from nova_workers.contracts.orchestration import OrchestrationLimits
from nova_workers.contracts.runs import Claim
from nova_workers.domain.capabilities.rules import serving
from nova_workers.domain.orchestrations.rules.transitions import TreeTransitions
from nova_workers.domain.runs.sql.claim import claim_next
from nova_workers.ledger import persist
from nova_workers.ledger.database import PostgresDatabase
from tests.requirements import proves
from tests.support.harness.fault_injection import Fault
from tests.support.harness.invariants import check_any_time
from tests.support.harness.trees import Forest, call, complete, script
from tests.support.harness.workers import ENDED, Harness

_EXAMPLES = int(os.environ.get("TEST_EXAMPLES", "0"))
_TABLES = "threads, runs, turns, messages, tool_calls, usage, thread_heads, effects, orchestrations"
_STATEMENTS = (
    "claim", "commit_calls", "commit_result", "commit_step", "suspend", "finish", "resolve", "send", "move", "insert",
    "mark", "pending", "open_waits", "agents", "lock_of_run", "summary", "seal_call", "other",
)  # fmt: skip
_FORGET_BELLS = "UPDATE runs SET rang_at = now() - interval '1 hour' WHERE status = 'queued'"
_LIMITS = OrchestrationLimits(max_agent_depth=10, max_concurrent_agents=100)

_faults: st.SearchStrategy[Fault] = st.sampled_from(["crash_before", "crash_after", "lose_reply", "refuse"])
_plans = st.lists(st.tuples(_faults, st.sampled_from(_STATEMENTS), st.integers(1, 6)), max_size=4)


@dataclass(frozen=True)
class Node:
    """An agent of a random tree, and how it runs its children: one by one, in parallel, or with messages."""

    how: str
    children: tuple[Node, ...] = ()

    def names(self, name: str) -> list[str]:
        """Return the names of all agents below."""
        found: list[str] = []
        for at, child in enumerate(self.children):
            found += [f"{name}.{at}", *child.names(f"{name}.{at}")]
        return found

    def items(self, name: str) -> list[dict[str, Any]]:
        """Return the script of the agent."""
        forms = [
            {"prompt": script(*child.items(f"{name}.{at}")), "name": f"{name}.{at}"}
            for at, child in enumerate(self.children)
        ]
        items: list[dict[str, Any]] = []
        if forms and self.how == "parallel":
            items = [call("spawn_children_parallel", children=forms)]
        elif self.how == "each":
            items = [call("spawn_child", **form) for form in forms]
        else:
            items = [call("spawn_child", wait=False, **form) for form in forms]
            items += [call("wait_for_message") for _ in forms]
        return [*items, complete(f"{name} done")]


_trees = st.recursive(
    st.just(Node("each")),
    lambda below: st.builds(
        Node, st.sampled_from(["each", "parallel", "messages"]), st.lists(below, min_size=1, max_size=3).map(tuple)
    ),
    max_leaves=6,
)


@pytest.mark.hypothesis
@pytest.mark.timeout(300 if _EXAMPLES == 0 else 0)
def test_a_tree_ends_the_same_whatever_statement_its_workers_die_at(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(persist, "_FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(serving, "_PAUSES_S", (0.0, 0.0))
    with asyncio.Runner() as runner:
        database = PostgresDatabase(settings.require_database_url(), pool_size=6)
        redis = Redis.from_url(settings.require_redis_url())

        @profile(
            max_examples=_EXAMPLES or 12,
            derandomize=not _EXAMPLES,
            database=None,
            phases=[Phase.generate, Phase.shrink] if _EXAMPLES else [Phase.generate],
        )
        @given(_trees, _plans)
        def check(tree: Node, plan: list[tuple[Fault, str, int]]) -> None:
            runner.run(_check(Harness(database, redis, settings), tree, plan))

        try:
            check()
        finally:
            runner.run(redis.aclose())
            runner.run(database.close())


async def _check(harness: Harness, tree: Node, plan: list[tuple[Fault, str, int]]) -> None:
    await harness.database.execute(f"TRUNCATE {_TABLES} CASCADE")
    await harness.redis.flushdb()
    await harness.open(publish=False)
    forest = Forest(harness)
    started = await forest.start(*tree.items("m"), limits=_LIMITS)
    faults = iter(plan)
    try:
        # A run may lose its worker fewer times than it has attempts.
        for _ in range(len(plan) + 1):
            worker = harness.worker(publisher=False)
            for fault, statement, nth in [planned] if (planned := next(faults, None)) else []:
                worker.faults.plan(fault, statement, nth=nth)
            with suppress(Unavailable):
                # A claim without a database is left to the reconciler.
                await harness.settle(worker)
            await check_any_time(harness.database)
            if not worker.faults.dead and await harness.status(started.run_id) in ENDED:
                break
            await worker.crash()
            harness.workers.remove(worker)
            await harness.recover()
            await harness.database.execute(
                "UPDATE runs SET rang_at = now() - interval '1 hour' WHERE status = 'queued'"
            )
            await harness.reconciler.reconcile()
            await harness.ticker.tick()
        await _check_outcome(forest, started.orchestration_id, tree)
    finally:
        await harness.close()


async def _check_outcome(forest: Forest, orchestration_id: str, tree: Node) -> None:
    database = forest.harness.database
    rows = await database.fetch(
        "SELECT a.*, p.name AS parent"
        "  FROM orchestration_agents a LEFT JOIN orchestration_agents p ON p.id = a.parent_id"
        " WHERE a.orchestration_id = :id",
        id=orchestration_id,
    )
    names = Counter("m" if row["parent"] is None else row["name"] for row in rows)
    assert names == Counter(["m", *tree.names("m")]), "an agent is missing, or there twice"
    for row in rows:
        name = "m" if row["parent"] is None else row["name"]
        assert (row["state"], row["summary"], row["activations"]) == ("COMPLETED", f"{name} done", 1)
        assert row["parent"] is None or name.rpartition(".")[0] in (row["parent"], "m")
    sent = Counter(
        row["source_id"]
        for row in await database.fetch(
            "SELECT source_id FROM orchestration_messages WHERE type = 'TASK_RESULT' AND delivered_at IS NOT NULL"
        )
    )
    assert set(sent.values()) <= {1}
    assert len(sent) == len(rows) - 1, "a result was not delivered"
    assert not await database.fetch("SELECT id FROM run_waits WHERE status = 'open'")
    assert not await database.fetch("SELECT id FROM runs WHERE status NOT IN ('succeeded')")


@proves("recover.zombie")
async def test_a_worker_that_lost_a_run_does_not_move_its_agent(forest: Forest) -> None:
    harness = forest.harness
    started = await forest.start(task="go")
    thread_id = await harness.database.fetchval("SELECT thread_id FROM runs WHERE id = :id", id=started.run_id)
    async with harness.work.begin_statement() as tx:
        lost = await claim_next(tx.connection, thread_id, worker_id="old", lease_ttl_s=30, max_attempts=5)
        await harness.recover()
        held = await claim_next(tx.connection, thread_id, worker_id="new", lease_ttl_s=30, max_attempts=5)
        assert isinstance(lost, Claim)
        assert isinstance(held, Claim)
        transitions = TreeTransitions()
        for late in (transitions.starting, transitions.running):
            await late(tx, lost)
        assert await forest.states(started) == ["PENDING"]
        await transitions.starting(tx, held)
        await transitions.running(tx, lost)
        assert await forest.states(started) == ["STARTING"]
