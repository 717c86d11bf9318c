"""Children of a worker for suspect runs: at most two, doorbells that wait, the drain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection

import pytest
from prometheus_client import CollectorRegistry

from nova_workers.base.errors import Unavailable
from nova_workers.base.observability.metrics import Metrics
from nova_workers.contracts.runs import Doorbell
from nova_workers.domain.runs.rules.suspects import SuspectRuns
from nova_workers.domain.runs.sql.fairness import NextSuspects
from tests.requirements import proves
from tests.support.harness.workers import Doorbells
from tests.support.waiting import until


class _Child:
    def __init__(self) -> None:
        self.asked: list[str] = []
        self._ended = asyncio.get_running_loop().create_future()

    def make_way(self) -> None:
        self.asked.append("make way")

    def drain(self) -> None:
        self.asked.append("drain")

    def end(self, code: int | None = 0) -> None:
        if not self._ended.done():
            self._ended.set_result(code)

    async def ended(self) -> int | None:
        return await self._ended


class _Worker:
    def __init__(self) -> None:
        self.bells = Doorbells()
        self.children: dict[str, _Child] = {}
        self.refusals = 0
        self.metrics = Metrics(CollectorRegistry())
        self.elsewhere: set[str] = set()
        """Threads whose next run is no queued suspect by now."""
        self.outages = 0
        self.answers = asyncio.Event()
        """Whether the ledger answers."""
        self.answers.set()
        self.suspects = SuspectRuns(self._start, self._take, self.bells, self.metrics)

    async def _take(self, thread_ids: Collection[str], most: int) -> NextSuspects:
        """Take the first by name."""
        due = sorted({*thread_ids} - self.elsewhere)
        self.elsewhere.update(due[:most])
        await self.answers.wait()
        if self.outages:
            self.outages -= 1
            self.elsewhere.clear()
            raise Unavailable("No database.")
        return NextSuspects(tuple(map(_bell, due[:most])), frozenset(due[most:]))

    def requeue(self, name: str) -> None:
        """Let the ledger have a queued suspect in a thread again."""
        self.elsewhere.discard(name)

    async def _start(self, bell: Doorbell) -> _Child:
        if self.refusals:
            self.refusals -= 1
            raise OSError("no memory")
        self.children[bell.thread_id] = child = _Child()
        return child

    async def ring(self, *names: str) -> None:
        for name in names:
            self.suspects.execute(_bell(name))
        await _settled()

    def count(self, outcome: str) -> float | None:
        return self.metrics.registry.get_sample_value("nova_suspect_processes_total", {"outcome": outcome})


def _bell(name: str) -> Doorbell:
    return Doorbell(f"run_{name}", name, "interactive")


async def _settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
async def worker() -> AsyncIterator[_Worker]:
    worker = _Worker()
    yield worker
    worker.suspects.drain()
    await _settled()
    for child in worker.children.values():
        child.end()
    await worker.suspects.ended()


@proves("recover.suspect")
async def test_two_suspects_execute_at_a_time_and_the_ledger_says_which(worker: _Worker):
    await worker.ring("d", "c", "b", "a")
    assert [*worker.children] == ["a", "b"]
    assert worker.suspects.thread_ids == {"a", "b", "c", "d"}
    worker.children["b"].end()
    await until(lambda: "c" in worker.children)
    worker.children["a"].end(-9)
    await until(lambda: "d" in worker.children)
    assert (worker.count("ended"), worker.count("lost")) == (1, 1)


@proves("recover.suspect")
async def test_no_child_starts_for_a_run_that_another_worker_executes_by_then(worker: _Worker):
    await worker.ring("a", "b", "c", "d")
    worker.elsewhere.add("c")
    worker.children["a"].end()
    await until(lambda: "d" in worker.children)
    assert [*worker.children] == ["a", "b", "d"]
    assert worker.suspects.thread_ids == {"b", "d"}


async def test_a_doorbell_that_comes_twice_starts_one_child(worker: _Worker):
    await worker.ring("a", "a")
    first = worker.children["a"]
    await worker.ring("a")
    first.end(-9)
    await worker.suspects.ended()
    assert worker.children == {"a": first}
    worker.requeue("a")
    await worker.ring("a")
    assert worker.children["a"] is not first


@proves("recover.suspect")
async def test_a_doorbell_for_the_next_suspect_of_a_thread_is_kept_until_its_child_has_ended(worker: _Worker):
    await worker.ring("a")
    first = worker.children["a"]
    worker.requeue("a")
    await worker.ring("a")
    assert worker.children["a"] is first
    first.end()
    await until(lambda: worker.children["a"] is not first)


async def test_a_doorbell_that_comes_during_the_choice_is_asked_about_again(worker: _Worker):
    worker.elsewhere.add("a")
    worker.answers.clear()
    await worker.ring("a")
    worker.requeue("a")
    await worker.ring("a")
    worker.answers.set()
    await until(lambda: "a" in worker.children)


async def test_a_doorbell_that_comes_while_its_thread_is_chosen_is_kept_until_its_child_has_ended(worker: _Worker):
    worker.answers.clear()
    await worker.ring("a", "b")
    await worker.ring("a")
    worker.answers.set()
    await until(lambda: {*worker.children} == {"a", "b"})
    first = worker.children["a"]
    assert first.asked == [], "No other thread waits."
    # Its run has ended, and the next one is a suspect; its child has not exited when another one does.
    worker.requeue("a")
    worker.children["b"].end()
    await _settled()
    assert worker.children["a"] is first
    first.end()
    await until(lambda: worker.children["a"] is not first)


async def test_suspects_wait_for_the_ledger(worker: _Worker):
    worker.outages = 1
    await worker.ring("a")
    await until(lambda: "a" in worker.children)


async def test_children_make_way_while_others_wait(worker: _Worker):
    await worker.ring("a", "b")
    assert worker.children["a"].asked == []
    await worker.ring("c", "d")
    assert worker.children["a"].asked[:1] == worker.children["b"].asked[:1] == ["make way"]
    worker.children["a"].end()
    await until(lambda: "c" in worker.children and worker.children["c"].asked[:1] == ["make way"])


async def test_a_child_that_cannot_be_started_is_left_to_the_reconciler(worker: _Worker):
    worker.refusals = 1
    await worker.ring("a", "b")
    assert [*worker.children] == ["b"]
    assert worker.suspects.thread_ids == {"b"}


@proves("drain.suspects")
async def test_a_drain_passes_on_what_waits_drains_the_children_and_starts_no_more(worker: _Worker):
    await worker.ring("a", "b", "c")
    worker.suspects.drain()
    assert [bell.thread_id for bell in worker.bells.take()] == ["c"]
    await worker.ring("d")
    assert [bell.thread_id for bell in worker.bells.take()] == ["d"]
    ended = asyncio.create_task(worker.suspects.ended())
    for name in ("a", "b"):
        assert worker.children[name].asked[-1] == "drain"
        assert not ended.done()
        worker.children[name].end()
        await _settled()
    await ended
    assert [*worker.children] == ["a", "b"]


@proves("drain.suspects")
async def test_a_drain_passes_on_what_the_ledger_is_asked_about_and_what_comes_while_a_child_ends(worker: _Worker):
    await worker.ring("a")
    worker.answers.clear()
    await worker.ring("b", "a")
    worker.suspects.drain()
    assert [bell.thread_id for bell in worker.bells.take()] == ["b"]
    worker.children["a"].end()
    await worker.suspects.ended()
    assert [bell.thread_id for bell in worker.bells.take()] == ["a"]
    assert [*worker.children] == ["a"]


async def test_a_child_that_starts_during_a_drain_drains(worker: _Worker):
    worker.suspects.execute(_bell("a"))
    await until(lambda: worker.suspects.executing == 1)
    worker.suspects.drain()
    await until(lambda: worker.children.get("a") is not None and worker.children["a"].asked == ["drain"])
