"""Who is served on a busy fleet: tenants by weight, agents in turn, priorities; and that nobody is forgotten."""

from __future__ import annotations

from typing import Any, cast

import orjson

from nova_workers.contracts.runs import Accepted, Doorbell
from nova_workers.keys import broker_queue
from nova_workers.ledger.database import Connection, Row
from nova_workers.ledger.runs.fairness import find_entitled
from nova_workers.ledger.runs.fleet import Switch, pause
from tests.requirements import proves
from tests.support.executor import AGENT, Floor, Worker
from tests.support.puppet import plan


async def _crowd(floor: Floor, bells: int = 100) -> None:
    """Have the broker hold doorbells that this worker has no slots for."""
    await floor.redis.lpush(broker_queue("interactive"), *["a doorbell"] * bells)  # type: ignore[misc] - redis types it as for both worlds


async def _tenant(floor: Floor, tenant_id: str, *, weight: int = 1, agents: tuple[str, ...] = (AGENT,)) -> None:
    await floor.database.execute(
        "INSERT INTO tenants (id, name, weight) VALUES ($1, $1, $2) ON CONFLICT (id) DO UPDATE SET weight = $2",
        tenant_id,
        weight,
    )
    own, floor.tenant_id = floor.tenant_id, tenant_id
    for agent in agents:
        await floor.add_agent(agent, {"name": agent, "engine": AGENT})
    floor.tenant_id = own


async def _submit(floor: Floor, tenant_id: str, count: int, **fields: Any) -> list[Accepted]:
    return [await floor.submit("hello", tenant_id=tenant_id, **fields) for _ in range(count)]


async def _serve(floor: Floor, worker: Worker, count: int | None = None) -> list[str]:
    """Answer doorbells one by one, as a worker with one slot; return whose runs were served, in order."""
    before = len(floor.puppet.asked)
    for _ in range(count or 1_000):
        if not floor.bells.waiting:
            break
        await worker.answer(floor.bells.waiting.pop(0))
    return [asked.run_id for asked in floor.puppet.asked[before:]]


def _letters(order: list[str], **runs: list[Accepted]) -> str:
    names = {run.run_id: letter for letter, accepted in runs.items() for run in accepted}
    return "".join(names[run_id] for run_id in order)


@proves("fair.tenants")
async def test_the_run_of_another_tenant_is_next_however_many_were_queued_before(floor: Floor):
    await _tenant(floor, "ten_b")
    a = await _submit(floor, floor.tenant_id, 30)
    worker = floor.worker()
    await _crowd(floor)
    await _serve(floor, worker, 5)
    b = await _submit(floor, "ten_b", 2)
    assert _letters(await _serve(floor, worker, 6), a=a, b=b) == "babaaa"


@proves("fair.bells")
async def test_on_a_fleet_with_room_doorbells_are_answered_as_they_come(floor: Floor):
    await _tenant(floor, "ten_b")
    a = await _submit(floor, floor.tenant_id, 3)
    b = await _submit(floor, "ten_b", 1)
    worker = floor.worker()
    worker.executor.slots = 5
    await _crowd(floor, 4)
    assert _letters(await _serve(floor, worker), a=a, b=b) == "aaab"
    assert "entitled" not in worker.tap.log


@proves("fair.weight")
async def test_turns_are_dealt_by_weight(floor: Floor):
    await _tenant(floor, "ten_b", weight=3)
    a = await _submit(floor, floor.tenant_id, 20)
    b = await _submit(floor, "ten_b", 20)
    await _crowd(floor)
    served = _letters(await _serve(floor, floor.worker(), 16), a=a, b=b)
    assert (served.count("a"), served.count("b")) == (4, 12)
    assert "aa" not in served, "the light one's turns are spread"


@proves("fair.weight")
async def test_a_tenant_that_was_away_has_nothing_to_catch_up(floor: Floor):
    await _tenant(floor, "ten_b")
    worker = floor.worker()
    a = await _submit(floor, floor.tenant_id, 30)
    await _crowd(floor)
    await _serve(floor, worker, 20)
    b = await _submit(floor, "ten_b", 10)
    assert _letters(await _serve(floor, worker, 8), a=a, b=b) == "babababa"


@proves("fair.weight")
async def test_who_has_its_share_of_the_slots_stands_back(floor: Floor):
    """Long runs: what counts is who holds how much, not who was served how often."""
    await _tenant(floor, "ten_b")
    worker = floor.worker()
    held = [await floor.begin(worker, plan([f"wait:{at}"]), str(at)) for at in range(3)]
    a = await _submit(floor, floor.tenant_id, 5)
    b = await _submit(floor, "ten_b", 1)
    await _crowd(floor)
    # One worker more, which has dealt nothing yet: it knows of the three by what stands in the ledger.
    assert _letters(await _serve(floor, floor.worker(), 2), a=a, b=b) == "ba"
    for at, (_, slot) in enumerate(held):
        floor.puppet.open(str(at))
        await slot


_AT_WORK = """
WITH begun AS (
    UPDATE runs SET status = 'running', fence = 1, lease_expires_at = now() + interval '1 hour'
     WHERE tenant_id = $1 AND queue = 'background' AND status = 'queued'
    RETURNING id, thread_id
)
UPDATE threads t SET active_run_id = b.id FROM begun b WHERE t.id = b.thread_id
"""


@proves("fair.weight")
async def test_what_runs_of_one_queue_is_no_share_of_the_other(floor: Floor):
    """Workers of `background` alone are full of a tenant: that takes nothing from its messages, nor from an agent's."""
    await _tenant(floor, "ten_b", agents=("busy", "rare"))
    await _submit(floor, "ten_b", 20, agent_id="busy", queue="background")
    await floor.database.execute(_AT_WORK, "ten_b")
    floor.bells.take()
    a = await _submit(floor, floor.tenant_id, 20)
    b = await _submit(floor, "ten_b", 2, agent_id="busy")
    c = await _submit(floor, "ten_b", 2, agent_id="rare")
    await _crowd(floor)
    served = _letters(await _serve(floor, floor.worker(), 8), a=a, b=b, c=c)
    assert served.replace("c", "b") in ("abababab", "babababa")
    assert served.replace("a", "") == "bcbc", "of agents that have nothing here, the one whose run is the oldest"


@proves("fair.weight")
async def test_agents_of_a_tenant_are_served_in_turn(floor: Floor):
    await _tenant(floor, floor.tenant_id, agents=("busy", "rare"))
    a = await _submit(floor, floor.tenant_id, 10, agent_id="busy")
    b = await _submit(floor, floor.tenant_id, 2, agent_id="rare")
    await _crowd(floor)
    assert _letters(await _serve(floor, floor.worker(), 6), a=a, b=b) in ("ababaa", "babaaa")


@proves("fair.priority")
async def test_runs_of_a_tenant_go_by_priority_and_a_thread_keeps_its_order(floor: Floor):
    worker = floor.worker()
    low = await _submit(floor, floor.tenant_id, 3, priority=-1)
    thread_id = await floor.thread()
    first = await floor.submit("hello", thread_id)
    urgent = await floor.submit("hello", thread_id, priority=5)
    plain = await _submit(floor, floor.tenant_id, 2)
    await _crowd(floor)
    order = await _serve(floor, worker)
    assert order == [run.run_id for run in (first, urgent, *plain, *low)]


async def test_a_high_priority_is_worth_nothing_among_tenants(floor: Floor):
    await _tenant(floor, "ten_b")
    b = await _submit(floor, "ten_b", 5, priority=100)
    a = await _submit(floor, floor.tenant_id, 5)
    await _crowd(floor)
    served = _letters(await _serve(floor, floor.worker(), 6), a=a, b=b)
    assert served in ("ababab", "bababa")


@proves("fair.bells")
async def test_no_run_is_left_without_a_doorbell_whoever_was_served_by_whose(floor: Floor):
    """The last doorbell of a crowd is that of a run which was served by another's."""
    await _tenant(floor, "ten_b")
    worker = floor.worker()
    a = await _submit(floor, floor.tenant_id, 1)
    b = await _submit(floor, "ten_b", 1, priority=1)
    mine, theirs = floor.bells.take()
    async with floor.database.connection() as connection:
        entitled = await find_entitled(connection, "interactive")
    assert entitled is not None
    # A crowd as long as the first is answered, and its doorbell is that of the one who is not next.
    first, second = (mine, theirs) if entitled.bell == theirs else (theirs, mine)
    await _crowd(floor)
    await worker.answer(first)
    await floor.redis.delete(broker_queue("interactive"))
    await worker.answer(second)
    assert [await floor.status(run.run_id) for run in (*a, *b)] == ["succeeded", "succeeded"]


@proves("fair.bells")
async def test_a_canceled_run_under_a_pause_is_ended_also_where_others_are_more_entitled(floor: Floor):
    worker, other = floor.worker(), floor.worker()
    run, _ = await floor.begin(worker, plan(["wait:a"]), "a")
    await worker.crash()
    await floor.recover()
    await _tenant(floor, "ten_b")
    b = await _submit(floor, "ten_b", 1)
    async with floor.database.connection() as connection:
        await pause(connection, Switch("tenant", floor.tenant_id), None)
    await floor.canceller.cancel(floor.tenant_id, run.run_id)
    floor.bells.take()
    await _crowd(floor)
    await other.answer(Doorbell(run.run_id, run.thread_id, "interactive"))
    assert [await floor.status(each.run_id) for each in (run, *b)] == ["canceled", "queued"]


async def test_pauses_held_threads_and_threads_that_were_tried_are_passed_over(floor: Floor):
    worker = floor.worker()
    await _tenant(floor, floor.tenant_id, agents=("paused",))
    held, slot = await floor.begin(worker, plan(["wait:a"]), "a")
    await floor.submit("behind it", held.thread_id)
    await _submit(floor, floor.tenant_id, 1, agent_id="paused")
    tried, free = await _submit(floor, floor.tenant_id, 2)
    async with floor.database.connection() as connection:
        await pause(connection, Switch("agent", floor.tenant_id, "paused"), None)
        entitled = await find_entitled(connection, "interactive", passing_over={tried.thread_id})
        nobody = await find_entitled(connection, "interactive", passing_over={tried.thread_id, free.thread_id})
        elsewhere = await find_entitled(connection, "background")
    assert entitled is not None
    assert entitled.bell == free.doorbell
    assert (nobody, elsewhere) == (None, None)
    floor.puppet.open("a")
    await slot


# Before all others in line, and on the thread of the run $1.
_LONG_LINE = """
INSERT INTO runs (id, tenant_id, thread_id, agent_id, seq, content, priority)
SELECT 'run_' || i || t.id, t.tenant_id, t.id, t.agent_id, t.next_seq + i, '[{"type": "text", "text": "hi"}]', i % 2
  FROM threads t, generate_series(1, 400) i
 WHERE t.id = $1
"""


async def test_however_many_stand_behind_threads_that_are_held_the_others_are_found(floor: Floor):
    worker = floor.worker()
    await _tenant(floor, floor.tenant_id, agents=("busy", "rare"))
    slots = [
        (await floor.begin(worker, plan([f"wait:{agent}"]), agent, agent_id=agent))[1] for agent in ("busy", "rare")
    ]
    for thread_id in await floor.database.fetch("SELECT thread_id FROM runs"):
        await floor.database.execute(_LONG_LINE, thread_id["thread_id"])
    free = [(await _submit(floor, floor.tenant_id, 1, agent_id=agent))[0] for agent in ("busy", "rare")]
    await floor.database.execute(_LONG_LINE, free[0].thread_id)
    named: list[str] = []
    async with floor.database.connection() as connection:
        for _ in range(3):
            entitled = await find_entitled(connection, "interactive", passing_over=named)
            named += [] if entitled is None else [entitled.bell.thread_id]
    assert named == [run.thread_id for run in free]
    for agent in ("busy", "rare"):
        floor.puppet.open(agent)
    for slot in slots:
        await slot


async def test_many_doorbells_at_once_serve_as_many_threads(floor: Floor):
    """Slots of one process that ask at the same moment are not all sent to the same thread."""
    runs = await _submit(floor, floor.tenant_id, 20)
    workers = [floor.worker() for _ in range(2)]
    await _crowd(floor)
    for at, bell in enumerate(floor.bells.take()):
        workers[at % 2].answer(bell)
    for run in runs:
        await floor.until(run.run_id, "succeeded")


_FILL = """
WITH made AS (
    INSERT INTO threads (id, tenant_id, agent_id, next_seq)
    SELECT 'thr_' || $1 || lpad(i::text, 8, '0'), $1, 'puppet', 2 FROM generate_series(1, $2::int) i
    RETURNING id, tenant_id, agent_id
)
INSERT INTO runs (id, tenant_id, thread_id, agent_id, seq, content)
SELECT replace(id, 'thr_', 'run_'), tenant_id, id, agent_id, 1, '[{"type": "text", "text": "hi"}]' FROM made
"""


@proves("fair.pick-cost")
async def test_whose_turn_it_is_costs_the_same_with_ten_thousand_in_line(floor: Floor):
    """Counted in rows that the plan touches, which no other load on the machine changes."""
    await _tenant(floor, "ten_b")
    await floor.database.execute(_FILL, "ten_b", 100)
    few = await _rows_touched(floor)
    await floor.database.execute(_FILL, floor.tenant_id, 10_000)
    await floor.database.execute("ANALYZE runs, threads")
    assert await _rows_touched(floor) <= few + 20


async def _rows_touched(floor: Floor) -> int:
    explained: list[int] = []

    class _Explained:
        async def fetchrow(self, statement: str, /, **values: Any) -> Row | None:
            found = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", **values)
            explained.append(_sum_rows(orjson.loads(found)[0]["Plan"]))
            return None

    async with floor.database.connection() as connection:
        await find_entitled(cast(Connection, _Explained()), "interactive")
    return explained[0]


def _sum_rows(node: dict[str, Any]) -> int:
    own = round(node["Actual Rows"] * node["Actual Loops"]) + node.get("Rows Removed by Filter", 0)
    return own + sum(_sum_rows(child) for child in node.get("Plans", ()))
