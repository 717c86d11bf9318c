"""Choice of the next run on a busy fleet: tenants by weight, agents in turn, priorities; every run starts."""

from __future__ import annotations

from typing import Any, cast

import orjson

from nova_workers.base.keys import broker_queue
from nova_workers.contracts.runs import Accepted, Doorbell
from nova_workers.domain.runs.sql.fairness import find_entitled
from nova_workers.domain.runs.sql.fleet import Switch, pause
from nova_workers.ledger.database import Connection, Row
from tests.requirements import proves
from tests.support.harness.planned_engine import plan
from tests.support.harness.workers import AGENT, Harness, Worker


async def _fill_broker(harness: Harness, bells: int = 100) -> None:
    """Fill the broker with doorbells for which this worker has no slots."""
    await harness.redis.lpush(broker_queue("interactive"), *["a doorbell"] * bells)  # type: ignore[misc] - redis types it as for both worlds


async def _tenant(harness: Harness, tenant_id: str, *, weight: int = 1, agents: tuple[str, ...] = (AGENT,)) -> None:
    await harness.database.execute(
        "INSERT INTO tenants (id, name, weight) VALUES (:tenant_id, :tenant_id, :weight) ON CONFLICT (id) DO UPDATE"
        " SET weight = :weight",
        tenant_id=tenant_id,
        weight=weight,
    )
    own, harness.tenant_id = harness.tenant_id, tenant_id
    for agent in agents:
        await harness.add_agent(agent, {"name": agent, "engine": AGENT})
    harness.tenant_id = own


async def _submit(harness: Harness, tenant_id: str, count: int, **fields: Any) -> list[Accepted]:
    return [await harness.submit("hello", tenant_id=tenant_id, **fields) for _ in range(count)]


async def _serve(harness: Harness, worker: Worker, count: int | None = None) -> list[str]:
    """Answer doorbells one by one, as a worker with one slot; return whose runs were served, in order."""
    before = len(harness.engine.model_calls)
    for _ in range(count or 1_000):
        if not harness.bells.waiting:
            break
        await worker.answer(harness.bells.waiting.pop(0))
    return [asked.run_id for asked in harness.engine.model_calls[before:]]


def _letters(order: list[str], **runs: list[Accepted]) -> str:
    names = {run.run_id: letter for letter, accepted in runs.items() for run in accepted}
    return "".join(names[run_id] for run_id in order)


@proves("fair.tenants")
async def test_the_run_of_another_tenant_is_next_however_many_were_queued_before(harness: Harness):
    await _tenant(harness, "ten_b")
    a = await _submit(harness, harness.tenant_id, 30)
    worker = harness.worker()
    await _fill_broker(harness)
    await _serve(harness, worker, 5)
    b = await _submit(harness, "ten_b", 2)
    assert _letters(await _serve(harness, worker, 6), a=a, b=b) == "babaaa"


@proves("fair.bells")
async def test_with_free_slots_doorbells_are_answered_in_their_order(harness: Harness):
    await _tenant(harness, "ten_b")
    a = await _submit(harness, harness.tenant_id, 3)
    b = await _submit(harness, "ten_b", 1)
    worker = harness.worker()
    worker.executor.slots = 5
    await _fill_broker(harness, 4)
    assert _letters(await _serve(harness, worker), a=a, b=b) == "aaab"
    assert "entitled" not in worker.faults.log


@proves("fair.weight")
async def test_slots_are_shared_by_weight(harness: Harness):
    await _tenant(harness, "ten_b", weight=3)
    a = await _submit(harness, harness.tenant_id, 20)
    b = await _submit(harness, "ten_b", 20)
    await _fill_broker(harness)
    served = _letters(await _serve(harness, harness.worker(), 16), a=a, b=b)
    assert (served.count("a"), served.count("b")) == (4, 12)
    assert "aa" not in served, "the light one's turns are spread"


@proves("fair.weight")
async def test_a_returning_tenant_gets_no_extra_share(harness: Harness):
    await _tenant(harness, "ten_b")
    worker = harness.worker()
    a = await _submit(harness, harness.tenant_id, 30)
    await _fill_broker(harness)
    await _serve(harness, worker, 20)
    b = await _submit(harness, "ten_b", 10)
    assert _letters(await _serve(harness, worker, 8), a=a, b=b) == "babababa"


@proves("fair.weight")
async def test_a_tenant_that_has_its_share_of_the_slots_is_passed_over(harness: Harness):
    """With long runs the number of held slots counts, not how often a tenant was served."""
    await _tenant(harness, "ten_b")
    worker = harness.worker()
    held = [await harness.begin(worker, plan([f"wait:{at}"]), str(at)) for at in range(3)]
    a = await _submit(harness, harness.tenant_id, 5)
    b = await _submit(harness, "ten_b", 1)
    await _fill_broker(harness)
    # A further worker without counts of its own: it learns of the three from the ledger.
    assert _letters(await _serve(harness, harness.worker(), 2), a=a, b=b) == "ba"
    for at, (_, slot) in enumerate(held):
        harness.engine.open(str(at))
        await slot


_AT_WORK = """
WITH begun AS (
    UPDATE runs SET status = 'running', fence = 1, lease_expires_at = now() + interval '1 hour'
     WHERE tenant_id = :tenant_id AND queue = 'background' AND status = 'queued'
    RETURNING id, thread_id
)
UPDATE threads t SET active_run_id = b.id FROM begun b WHERE t.id = b.thread_id
"""


@proves("fair.weight")
async def test_running_runs_of_one_queue_do_not_count_in_another(harness: Harness):
    """Workers of `background` alone are full of a tenant: that takes nothing from its messages, nor from an agent's."""
    await _tenant(harness, "ten_b", agents=("busy", "rare"))
    await _submit(harness, "ten_b", 20, agent_id="busy", queue="background")
    await harness.database.execute(_AT_WORK, tenant_id="ten_b")
    harness.bells.take()
    a = await _submit(harness, harness.tenant_id, 20)
    b = await _submit(harness, "ten_b", 2, agent_id="busy")
    c = await _submit(harness, "ten_b", 2, agent_id="rare")
    await _fill_broker(harness)
    served = _letters(await _serve(harness, harness.worker(), 8), a=a, b=b, c=c)
    assert served.replace("c", "b") in ("abababab", "babababa")
    assert served.replace("a", "") == "bcbc", "of agents that have nothing here, the one whose run is the oldest"


@proves("fair.weight")
async def test_agents_of_a_tenant_are_served_in_turn(harness: Harness):
    await _tenant(harness, harness.tenant_id, agents=("busy", "rare"))
    a = await _submit(harness, harness.tenant_id, 10, agent_id="busy")
    b = await _submit(harness, harness.tenant_id, 2, agent_id="rare")
    await _fill_broker(harness)
    assert _letters(await _serve(harness, harness.worker(), 6), a=a, b=b) in ("ababaa", "babaaa")


@proves("fair.priority")
async def test_runs_of_a_tenant_go_by_priority_and_a_thread_keeps_its_order(harness: Harness):
    worker = harness.worker()
    low = await _submit(harness, harness.tenant_id, 3, priority=-1)
    thread_id = await harness.thread()
    first = await harness.submit("hello", thread_id)
    urgent = await harness.submit("hello", thread_id, priority=5)
    plain = await _submit(harness, harness.tenant_id, 2)
    await _fill_broker(harness)
    order = await _serve(harness, worker)
    assert order == [run.run_id for run in (first, urgent, *plain, *low)]


async def test_priority_does_not_count_between_tenants(harness: Harness):
    await _tenant(harness, "ten_b")
    b = await _submit(harness, "ten_b", 5, priority=100)
    a = await _submit(harness, harness.tenant_id, 5)
    await _fill_broker(harness)
    served = _letters(await _serve(harness, harness.worker(), 6), a=a, b=b)
    assert served in ("ababab", "bababa")


@proves("fair.bells")
async def test_no_run_is_left_without_a_doorbell_when_doorbells_serve_other_runs(harness: Harness):
    """The last doorbell of a backlog is that of a run which another doorbell served."""
    await _tenant(harness, "ten_b")
    worker = harness.worker()
    a = await _submit(harness, harness.tenant_id, 1)
    b = await _submit(harness, "ten_b", 1, priority=1)
    mine, theirs = harness.bells.take()
    async with harness.database.connection() as connection:
        entitled = await find_entitled(connection, "interactive")
    assert entitled is not None
    # A backlog while the first is answered, whose doorbell is that of the run that is not next.
    first, second = (mine, theirs) if entitled.bell == theirs else (theirs, mine)
    await _fill_broker(harness)
    await worker.answer(first)
    await harness.redis.delete(broker_queue("interactive"))
    await worker.answer(second)
    assert [await harness.status(run.run_id) for run in (*a, *b)] == ["succeeded", "succeeded"]


@proves("fair.bells")
async def test_a_canceled_run_under_a_pause_is_ended_also_where_others_are_more_entitled(harness: Harness):
    worker, other = harness.worker(), harness.worker()
    run, _ = await harness.begin(worker, plan(["wait:a"]), "a")
    await worker.crash()
    await harness.recover()
    await _tenant(harness, "ten_b")
    b = await _submit(harness, "ten_b", 1)
    async with harness.database.connection() as connection:
        await pause(connection, Switch("tenant", harness.tenant_id), None)
    await harness.canceller.cancel(harness.tenant_id, run.run_id)
    harness.bells.take()
    await _fill_broker(harness)
    await other.answer(Doorbell(run.run_id, run.thread_id, "interactive"))
    assert [await harness.status(each.run_id) for each in (run, *b)] == ["canceled", "queued"]


async def test_pauses_held_threads_and_threads_that_were_tried_are_passed_over(harness: Harness):
    worker = harness.worker()
    await _tenant(harness, harness.tenant_id, agents=("paused",))
    held, slot = await harness.begin(worker, plan(["wait:a"]), "a")
    await harness.submit("behind it", held.thread_id)
    await _submit(harness, harness.tenant_id, 1, agent_id="paused")
    tried, free = await _submit(harness, harness.tenant_id, 2)
    async with harness.database.connection() as connection:
        await pause(connection, Switch("agent", harness.tenant_id, "paused"), None)
        entitled = await find_entitled(connection, "interactive", excluded_threads={tried.thread_id})
        none_left = await find_entitled(connection, "interactive", excluded_threads={tried.thread_id, free.thread_id})
        elsewhere = await find_entitled(connection, "background")
    assert entitled is not None
    assert entitled.bell == free.doorbell
    assert (none_left, elsewhere) == (None, None)
    harness.engine.open("a")
    await slot


# Before all other queued runs, and on one thread.
_LONG_QUEUE = """
INSERT INTO runs (id, tenant_id, thread_id, agent_id, seq, content, priority)
SELECT 'run_' || i || t.id, t.tenant_id, t.id, t.agent_id, t.next_seq + i, '[{"type": "text", "text": "hi"}]', i % 2
  FROM threads t, generate_series(1, 400) i
 WHERE t.id = :thread_id
"""


async def test_runs_are_found_behind_any_number_of_runs_of_held_threads(harness: Harness):
    worker = harness.worker()
    await _tenant(harness, harness.tenant_id, agents=("busy", "rare"))
    slots = [
        (await harness.begin(worker, plan([f"wait:{agent}"]), agent, agent_id=agent))[1] for agent in ("busy", "rare")
    ]
    for thread_id in await harness.database.fetch("SELECT thread_id FROM runs"):
        await harness.database.execute(_LONG_QUEUE, thread_id=thread_id["thread_id"])
    free = [(await _submit(harness, harness.tenant_id, 1, agent_id=agent))[0] for agent in ("busy", "rare")]
    await harness.database.execute(_LONG_QUEUE, thread_id=free[0].thread_id)
    named: list[str] = []
    async with harness.database.connection() as connection:
        for _ in range(3):
            entitled = await find_entitled(connection, "interactive", excluded_threads=named)
            named += [] if entitled is None else [entitled.bell.thread_id]
    assert named == [run.thread_id for run in free]
    for agent in ("busy", "rare"):
        harness.engine.open(agent)
    for slot in slots:
        await slot


async def test_many_doorbells_at_once_serve_as_many_threads(harness: Harness):
    """Slots of one process that choose concurrently do not all get the same thread."""
    runs = await _submit(harness, harness.tenant_id, 20)
    workers = [harness.worker() for _ in range(2)]
    await _fill_broker(harness)
    for at, bell in enumerate(harness.bells.take()):
        workers[at % 2].answer(bell)
    for run in runs:
        await harness.until(run.run_id, "succeeded")


_FILL = """
WITH made AS (
    INSERT INTO threads (id, tenant_id, agent_id, next_seq)
    SELECT 'thr_' || :tenant_id || lpad(i::text, 8, '0'), :tenant_id, 'planned', 2 FROM generate_series(1, :many::int) i
    RETURNING id, tenant_id, agent_id
)
INSERT INTO runs (id, tenant_id, thread_id, agent_id, seq, content)
SELECT replace(id, 'thr_', 'run_'), tenant_id, id, agent_id, 1, '[{"type": "text", "text": "hi"}]' FROM made
"""


@proves("fair.pick-cost")
async def test_the_choice_of_the_next_run_costs_the_same_with_ten_thousand_queued(harness: Harness):
    """Counted in rows that the plan touches, which no other load on the machine changes."""
    await _tenant(harness, "ten_b")
    await harness.database.execute(_FILL, tenant_id="ten_b", many=100)
    few = await _rows_touched(harness)
    await harness.database.execute(_FILL, tenant_id=harness.tenant_id, many=10_000)
    await harness.database.execute("ANALYZE runs, threads")
    assert await _rows_touched(harness) <= few + 20


_RUNNING_WITH_QUEUES = """
WITH made AS (
    INSERT INTO threads (id, tenant_id, agent_id, next_seq, active_run_id, fence)
    SELECT 'thr_' || i, :tenant_id, 'planned', 22, 'run_' || i || '_0', 1 FROM generate_series(1, 300) i
    RETURNING id, tenant_id, agent_id
)
INSERT INTO runs (id, tenant_id, thread_id, agent_id, seq, content, status, fence, lease_expires_at, queued_at)
SELECT replace(id, 'thr_', 'run_') || '_' || n, tenant_id, id, agent_id, n + 1, '[]',
       CASE n WHEN 0 THEN 'running' ELSE 'queued' END, 1, CASE n WHEN 0 THEN now() END, now() + n * interval '1 second'
  FROM made, generate_series(0, 20) n
"""


@proves("fair.pick-cost")
async def test_a_queued_run_of_a_running_thread_costs_the_choice_no_lookup_of_its_thread(harness: Harness):
    """With more running threads than are looked up one by one."""
    await _tenant(harness, harness.tenant_id)
    await harness.database.execute(_RUNNING_WITH_QUEUES, tenant_id=harness.tenant_id)
    await harness.database.execute("ANALYZE runs, threads")
    assert 0 < await _rows_touched(harness, "threads") <= 256


async def _rows_touched(harness: Harness, table: str | None = None) -> int:
    """Return how many rows the plan of the choice reads or passes on, or how many it reads from one table."""
    explained: list[int] = []

    class _Explained:
        async def fetchrow(self, statement: str, /, **values: Any) -> Row | None:
            found = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", **values)
            explained.append(_sum_rows(orjson.loads(found)[0]["Plan"], table))
            return None

    async with harness.database.connection() as connection:
        await find_entitled(cast(Connection, _Explained()), "interactive")
    return explained[0]


def _sum_rows(node: dict[str, Any], table: str | None) -> int:
    own = round(node["Actual Rows"] * node["Actual Loops"]) + node.get("Rows Removed by Filter", 0)
    below = sum(_sum_rows(child, table) for child in node.get("Plans", ()))
    return below + (own if table in (None, node.get("Relation Name")) else 0)
