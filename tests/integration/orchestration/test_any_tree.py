"""Any tree, whatever its agents do to each other and whichever is killed: it ends, by legal moves, within its limits.

More, with fresh random examples: `TEST_EXAMPLES=500 pytest tests/integration/orchestration/test_any_tree.py`
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import Phase, given
from hypothesis import settings as profile
from hypothesis import strategies as st
from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.base.vocabulary import ACTIVE_AGENTS
from nova_workers.contracts.orchestration import OrchestrationLimits
from nova_workers.domain.orchestrations.rules.lifecycle import validate_transition
from nova_workers.ledger.database import Database, PostgresDatabase
from tests.support.harness.invariants import check_any_time
from tests.support.harness.trees import Forest, call, complete, script
from tests.support.harness.workers import Harness

_EXAMPLES = int(os.environ.get("TEST_EXAMPLES", "0"))
_TABLES = "threads, runs, turns, messages, tool_calls, usage, thread_heads, effects, orchestrations"
_LIMITS = OrchestrationLimits(max_agent_depth=2, max_concurrent_agents=4)
_MOST_BELLS = 400

# Records every change of an agent's state, so that no move between two looks is missed.
_RECORD_MOVES = (
    "CREATE TABLE IF NOT EXISTS moves (id bigserial, agent_id text, source text, target text)",
    """
    CREATE OR REPLACE FUNCTION record_move() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN INSERT INTO moves (agent_id, source, target) VALUES (NEW.id, OLD.state, NEW.state); RETURN NULL; END'
    """,
    """
    CREATE OR REPLACE TRIGGER record_move AFTER UPDATE OF state ON orchestration_agents
    FOR EACH ROW WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION record_move()
    """,
)


@dataclass(frozen=True)
class Agent:
    """What an agent of a random tree does, in order."""

    acts: tuple[str | Agent, ...] = ()

    def items(self) -> list[dict[str, Any]]:
        """Return its script."""
        return [*(self._item(act) for act in self.acts), complete("done")]

    @staticmethod
    def _item(act: str | Agent) -> dict[str, Any]:
        if isinstance(act, Agent):
            return call("spawn_child", prompt=script(*act.items()), wait=len(act.acts) % 2 == 0)
        return {
            "ask": call("ask_parent", question="May I?"),
            "answer": call("respond_to_child", child_id="oag", response="Yes."),
            "wait": call("wait_for_message"),
            "prompt": call("send_child_prompt", child_id="oag", prompt="Go on."),
            "restart": call("restart_child", child_id="oag", prompt=script(complete("again"))),
            "progress": call("report_progress", status="half", percent=50),
            "look": call("get_children_status"),
        }[act]


_acts = st.sampled_from(["ask", "answer", "wait", "prompt", "restart", "progress", "look"])
_trees = st.recursive(
    st.builds(Agent, st.lists(_acts, max_size=2).map(tuple)),
    lambda below: st.builds(Agent, st.lists(_acts | below, min_size=1, max_size=5).map(tuple)),
    max_leaves=8,
)
_moments = st.lists(st.tuples(st.integers(1, 12), st.integers(0, 6)), max_size=3)
"""After how many doorbells an agent is killed, and which one: by its place in the order of spawning."""


@pytest.mark.hypothesis
@pytest.mark.timeout(300 if _EXAMPLES == 0 else 0)
def test_any_tree_ends_by_legal_moves_and_within_its_limits(settings: Settings) -> None:
    with asyncio.Runner() as runner:
        database = PostgresDatabase(settings.require_database_url(), pool_size=6)
        redis = Redis.from_url(settings.require_redis_url())

        @profile(
            max_examples=_EXAMPLES or 15,
            derandomize=not _EXAMPLES,
            database=None,
            phases=[Phase.generate, Phase.shrink] if _EXAMPLES else [Phase.generate],
        )
        @given(_trees, _moments, st.randoms(use_true_random=False))
        def check(tree: Agent, kills: list[tuple[int, int]], order: Any) -> None:
            runner.run(_check(Harness(database, redis, settings), tree, kills, order))

        try:
            check()
        finally:
            runner.run(redis.aclose())
            runner.run(database.close())


async def _check(harness: Harness, tree: Agent, kills: list[tuple[int, int]], order: Any) -> None:
    database = harness.database
    for statement in _RECORD_MOVES:
        await database.execute(statement)
    await database.execute(f"TRUNCATE {_TABLES}, moves CASCADE")
    await harness.redis.flushdb()
    await harness.open(publish=False)
    worker = harness.worker(publisher=False)
    forest = Forest(harness)
    try:
        started = await forest.start(*tree.items(), limits=_LIMITS)
        due = sorted(kills)
        for answered in range(_MOST_BELLS):
            if not harness.bells.waiting:
                break
            while due and due[0][0] <= answered:
                agents = await forest.agents(started)
                _, place = due.pop(0)
                victim = agents[place % len(agents)]
                await forest.service.kill(forest.tenant_id, started.orchestration_id, victim.id, "the test")
            bell = harness.bells.waiting.pop(order.randrange(len(harness.bells.waiting)))
            await worker.answer(bell)
            await check_any_time(database)
            active = [agent for agent in await forest.agents(started) if agent.state in ACTIVE_AGENTS]
            assert len(active) <= _LIMITS.max_concurrent_agents
            assert all(agent.depth <= _LIMITS.max_agent_depth for agent in active)
        await _check_end(database)
    finally:
        await harness.close()


async def _check_end(database: Database) -> None:
    for move in await database.fetch("SELECT source, target FROM moves ORDER BY id"):
        validate_transition(move["source"], move["target"])
    left = await database.fetch(
        "SELECT a.name, a.state FROM orchestration_agents a WHERE a.state = ANY(:active)", active=list(ACTIVE_AGENTS)
    )
    assert not left, f"agents that never ended: {left}"
    assert not await database.fetch("SELECT id FROM runs WHERE status IN ('scheduled', 'queued', 'running', 'waiting')")
    assert not await database.fetch("SELECT id FROM run_waits WHERE status = 'open'")
    assert not await database.fetch("SELECT id FROM orchestrations WHERE finished_at IS NULL")
    orphans = await database.fetch(
        "SELECT c.id FROM orchestration_agents c JOIN orchestration_agents p ON p.id = c.parent_id"
        " WHERE c.ended_at > p.ended_at + interval '1 second'"
    )
    assert not orphans, "agents that outlived their parents"
    twice = await database.fetch(
        "SELECT source_id, correlation_id FROM orchestration_messages WHERE type IN ('TASK_RESULT', 'ANSWER')"
        " GROUP BY source_id, correlation_id HAVING count(*) > 1"
    )
    assert not twice, "a result or an answer was sent twice"
