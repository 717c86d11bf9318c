"""Any order of events of runs, from submit and claim to crash, wait, drain and wipe, one statement at a time.

Every statement of every worker waits until the machine lets it through, loses its reply, or kills its worker before or
after it; in between anything else may happen. So a failing example is a schedule that can be read and replayed.

Longer, with fresh random schedules:
`TEST_EXAMPLES=2000 pytest tests/integration/runs/protocol/test_state_machine.py`
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from typing import Any, TypeVar, cast

import pytest
from hypothesis import HealthCheck, Phase
from hypothesis import settings as profile
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.base.errors import Rejected, Unavailable
from nova_workers.base.keys import broker_queue
from nova_workers.contracts.waits import Answer
from nova_workers.domain.runs.sql.fleet import Switch, pause, resume
from nova_workers.ledger import persist
from nova_workers.ledger.database import PostgresDatabase
from tests.requirements import proves
from tests.support.harness.fault_injection import Fault
from tests.support.harness.invariants import check_any_time, check_settled, thread_state
from tests.support.harness.planned_engine import plan
from tests.support.harness.workers import AGENT, ENDED, Harness, Worker

T = TypeVar("T")

_EXAMPLES = int(os.environ.get("TEST_EXAMPLES", "0"))
_PLANS = [
    plan(),
    plan(["a"]),
    plan(["a"], ["b", "again:c"]),
    plan(["fail:a"], ["b"], ["c"]),
    plan(["ask:x"]),
    plan(["a", "ask:x", "b", "ask:y"], ["c"]),
    plan(["agent:x"], ["ask:x"]),
    plan(["agent:x", "agent:y"]),
]
_TABLES = "threads, runs, turns, messages, tool_calls, usage, thread_heads, effects, switches"
_WORKERS = 3

_workers = st.integers(0, _WORKERS - 1)
_faults: st.SearchStrategy[Fault] = st.sampled_from(["lose_reply", "refuse", "crash_before", "crash_after"])


class _World:
    """The servers and the loop that all examples of a test share."""

    def __init__(self, runner: asyncio.Runner, configuration: Settings) -> None:
        self.runner = runner
        self.configuration = configuration
        self.database = PostgresDatabase(configuration.require_database_url(), pool_size=6)
        self.redis = Redis.from_url(configuration.require_redis_url())

    def close(self) -> None:
        self.runner.run(self.redis.aclose())
        self.runner.run(self.database.close())


class _Slot:
    """A worker with one slot, which is replaced after its death or drain."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self.worker = self._hire()
        self.task: asyncio.Task[None] | None = None

    async def quiesce(self) -> None:
        """Run it until its next statement waits, or its slot is free."""
        if self.task is None:
            return
        stopped = asyncio.create_task(self.worker.faults.stopped.wait())
        async with asyncio.timeout(60):
            await asyncio.wait({self.task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if self.task.done():
            # A database that is away at the claim is for the reconciler: the doorbell's task fails.
            assert isinstance(self.task.exception(), Unavailable | None)
            self.task = None
            if self.worker.faults.dead or self.worker.executor.draining:
                await self.replace()

    async def replace(self) -> None:
        await self.worker.crash()
        self._harness.workers.remove(self.worker)
        self.task = None
        self.worker = self._hire()

    def _hire(self) -> Worker:
        worker = self._harness.worker(publisher=False)
        worker.faults.stepping = True
        return worker


class _Protocol(RuleBasedStateMachine):
    runs: Bundle[str] = Bundle("runs")

    def __init__(self, world: _World) -> None:
        super().__init__()
        self.world = world
        self.harness = Harness(world.database, world.redis, world.configuration)
        self.slots: list[_Slot] = []
        self.threads: list[str] = []
        self.over: dict[str, str] = {}
        self.fences: dict[str, int] = {}
        self.begun: set[tuple[str, int]] = set()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.world.runner.run(work)

    @initialize()
    def open(self) -> None:
        self.do(self._open())

    async def _open(self) -> None:
        await self.world.database.execute(f"TRUNCATE {_TABLES} CASCADE")
        await self.world.redis.flushdb()
        await self.harness.open(publish=False)
        await self._cap(None)
        self.threads = [await self.harness.thread() for _ in range(2)]
        self.slots = [_Slot(self.harness) for _ in range(_WORKERS)]

    # --- the front door

    @rule(
        target=runs,
        thread=st.integers(0, 1),
        on_busy=st.sampled_from(["enqueue", "enqueue", "steer", "steer", "interrupt", "reject"]),
        text=st.sampled_from(_PLANS),
    )
    def submit(self, thread: int, on_busy: str, text: str) -> Any:
        try:
            return self.do(self.harness.submit(text, self.threads[thread], on_busy=on_busy)).run_id
        except Rejected:
            return multiple()

    @rule(run=runs, notified=st.booleans())
    def cancel(self, run: str, notified: bool) -> None:
        """Cancel a run; all workers get the notification, or it is lost."""
        self.do(self._cancel(run, notified))

    async def _cancel(self, run: str, notified: bool) -> None:
        try:
            await self.harness.canceller.cancel(self.harness.tenant_id, run)
        except Rejected:
            assert run in self.over
        if notified:
            for slot in self.slots:
                slot.worker.keeper.cancel(run, "cancel")
            await self._quiesce()

    @rule(what=st.sampled_from(["answer", "answer", "expire"]), newest=st.booleans())
    def end_wait(self, what: str, newest: bool) -> None:
        """Answer a question of a run that waits, or let all waits that a person could end time out."""
        self.do(self._end_wait(what, newest))

    async def _end_wait(self, what: str, newest: bool) -> None:
        if what == "expire":
            await self.world.database.execute("UPDATE run_waits SET due_at = now() WHERE kind = 'user'")
            return
        waits = await self.world.database.fetch(
            "SELECT id, run_id FROM run_waits WHERE status = 'open' AND kind = 'user' ORDER BY id"
        )
        if waits:
            wait = waits[-1 if newest else 0]
            answer = Answer(text="It is so.")
            await self.harness.waiting.answer(self.harness.tenant_id, wait["run_id"], wait["id"], answer)

    # --- workers

    @rule(worker=_workers, statements=st.integers(1, 8))
    def work(self, worker: int, statements: int) -> None:
        """Let a worker answer the oldest doorbell, or continue its work."""
        self.do(self._work(self.slots[worker], statements))

    @rule(worker=_workers, statements=st.integers(1, 8))
    def work_on(self, worker: int, statements: int) -> None:
        """As `work`, so that work is chosen more often than faults."""
        self.do(self._work(self.slots[worker], statements))

    @rule(worker=_workers, fault=_faults)
    def fail(self, worker: int, fault: Fault) -> None:
        """Inject a fault into the next statement of a worker."""
        self.do(self._work(self.slots[worker], 1, fault))

    async def _work(self, slot: _Slot, statements: int, fault: Fault | None = None) -> None:
        if slot.task is None and self.harness.bells.waiting:
            slot.task = slot.worker.answer(self.harness.bells.waiting.pop(0))
            await slot.quiesce()
        for _ in range(statements):
            if slot.worker.faults.waiting is None:
                return
            await self._step(slot, fault)

    async def _step(self, slot: _Slot, fault: Fault | None) -> None:
        stale = await self._state_if_stale(slot)
        slot.worker.faults.step(fault)
        await slot.quiesce()
        if stale is not None:
            thread_id, before = stale
            assert await thread_state(self.world.database, thread_id) == before, "a write with an old fence"
        await self._check_order()

    async def _state_if_stale(self, slot: _Slot) -> tuple[str, list[Any]] | None:
        """Return the ledger's state of a thread that this worker has lost, if it is about to write to it."""
        held = slot.worker.keeper.held
        if not held or slot.worker.faults.waiting == "claim":
            return None
        claim = held[0].claim
        row = await self.harness.run(claim.run_id)
        if row["fence"] == claim.fence and row["status"] == "running":
            return None
        return claim.thread_id, await thread_state(self.world.database, claim.thread_id)

    @rule(worker=_workers, statements=st.integers(0, 8))
    def expire_leases(self, worker: int, statements: int) -> None:
        """All leases expire, also those of live workers: they are zombies, and another takes a run over."""
        self.do(self._expire_leases(self.slots[worker], statements))

    async def _expire_leases(self, slot: _Slot, statements: int) -> None:
        await self.harness.recover()
        # The newest bell is that of a run which was taken back just now.
        self.harness.bells.waiting.reverse()
        await self._work(slot, statements)

    @rule(worker=_workers, how=st.sampled_from(["crash", "drain", "drain", "stop in mid-step", "renew"]))
    def disturb(self, worker: int, how: str) -> None:
        self.do(self._disturb(self.slots[worker], how))

    async def _disturb(self, slot: _Slot, how: str) -> None:
        if how == "renew":
            await slot.worker.keeper.renew()
        elif how == "crash" or slot.task is None:
            await slot.replace()
        else:
            slot.worker.drain()
            if how == "stop in mid-step":
                slot.worker.stop_in_mid_step()
        await self._quiesce()

    # --- time, bells and servers

    @rule(
        what=st.sampled_from(
            [
                "reconcile",
                "reconcile",
                "double",
                "drop",
                "reorder",
                "wipe",
                "pause",
                "resume",
                "cap",
                "uncap",
                "backlog",
            ]
        )
    )
    def happen(self, what: str) -> None:
        self.do(self._happen(what))

    async def _happen(self, what: str) -> None:
        bells = self.harness.bells.waiting
        match what:
            case "reconcile":
                await self._reconcile()
            case "double":
                bells.extend(bells[:])
            case "drop":
                bells.clear()
            case "reorder":
                bells.reverse()
            case "wipe":
                await self.world.redis.flushdb()
            case "cap" | "uncap":
                await self._cap(1 if what == "cap" else None)
            case "backlog":
                # From now on every doorbell only says that a slot is free.
                await self.world.redis.lpush(broker_queue("interactive"), "a doorbell")  # type: ignore[misc] - redis types it as for both worlds
            case _:
                await self._pause(what == "pause")

    async def _cap(self, most: int | None) -> None:
        await self.world.database.execute(
            "UPDATE tenants SET max_running = :max_running WHERE id = :tenant_id",
            tenant_id=self.harness.tenant_id,
            max_running=most,
        )

    async def _pause(self, on: bool) -> None:
        async with self.world.database.connection() as connection:
            switch = Switch("agent", self.harness.tenant_id, AGENT)
            await (pause(connection, switch, None) if on else resume(connection, switch))

    async def _reconcile(self) -> None:
        await self.harness.age_doorbells()
        await self.harness.reconciler.reconcile()

    async def _quiesce(self) -> None:
        for slot in self.slots:
            await slot.quiesce()

    # --- what must hold

    @invariant()
    def holds(self) -> None:
        if self.slots:
            self.do(self._check())

    async def _check(self) -> None:
        await check_any_time(self.world.database)
        for row in await self.world.database.fetch(
            "SELECT id, fence, NULL AS whole FROM threads"
            " UNION ALL SELECT id, fence, r::text FROM runs r WHERE finished_at IS NOT NULL"
        ):
            if row["whole"] is not None:
                assert self.over.setdefault(row["id"], row["whole"]) == row["whole"], "a run that was over changed"
            else:
                assert row["fence"] >= self.fences.get(row["id"], 0), "a fence went back"
                self.fences[row["id"]] = row["fence"]

    async def _check_order(self) -> None:
        """A run that was just claimed was the first of its queue."""
        for run in await self.world.database.fetch(
            "SELECT id, thread_id, fence, attempt, front, seq, cancel_requested_at FROM runs WHERE status = 'running'"
        ):
            if (run["id"], run["fence"]) in self.begun:
                continue
            self.begun.add((run["id"], run["fence"]))
            ahead = await self.world.database.fetch(
                "SELECT id FROM runs WHERE thread_id = :thread_id AND status = 'queued'"
                " AND (attempt = 0, NOT front, seq) < (:attempt::int = 1, NOT :front::bool, :seq::bigint)",
                thread_id=run["thread_id"],
                attempt=run["attempt"],
                front=run["front"],
                seq=run["seq"],
            )
            assert not ahead, f"{run['id']} was claimed before {ahead}"
            over = await self.world.database.fetchval(
                "SELECT max_running < (SELECT count(*) FROM runs WHERE status = 'running') FROM tenants"
                " WHERE id = :tenant_id",
                tenant_id=self.harness.tenant_id,
            )
            assert not over or run["cancel_requested_at"], f"{run['id']} was claimed over the cap"

    def teardown(self) -> None:
        try:
            if self.slots:
                self.do(self._settle())
        finally:
            self.do(self.harness.close())

    async def _settle(self) -> None:
        """Let everything end, and check the result."""
        await self._pause(False)
        for slot in self.slots:
            slot.worker.faults.stepping = False
            if slot.worker.faults.waiting is not None:
                slot.worker.faults.step()
            await slot.quiesce()
        last = self.harness.worker(publisher=False)
        for _ in range(30):
            await self._end_wait("expire", newest=False)
            await self.harness.recover()
            await self._reconcile()
            await self.harness.settle(last)
            if not await self.world.database.fetchval(
                "SELECT count(*) FROM runs WHERE NOT status = ANY(:ended)", ended=list(ENDED)
            ):
                break
        await check_settled(self.world.database, self.harness.engine)


@pytest.mark.begins_first
@pytest.mark.hypothesis
@pytest.mark.timeout(600 if _EXAMPLES == 0 else 0)
@proves(
    "machine",
    "claim.exclusive",
    "claim.fence",
    "claim.old-fence",
    "claim.fifo",
    "submit.steer",
    "finish.usage-once",
    "fair.cap",
)
def test_any_order_of_events_keeps_the_promises(
    database_url: str, redis_url: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(persist, "_FIRST_PAUSE_S", 0.0)
    with asyncio.Runner() as runner:
        world = _World(runner, settings)
        try:
            # Hypothesis takes any factory; its annotation names the class only.
            factory = cast(type[RuleBasedStateMachine], lambda: _Protocol(world))
            run_state_machine_as_test(factory, settings=_profile())
        finally:
            world.close()


def _profile() -> profile:
    return profile(
        max_examples=_EXAMPLES or 8,
        stateful_step_count=50,
        derandomize=not _EXAMPLES,
        # A failing schedule is shrunk only when a developer looks for one; that takes minutes.
        phases=[Phase.generate, Phase.shrink] if _EXAMPLES else [Phase.generate],
        database=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )
