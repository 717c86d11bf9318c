"""Concurrent schedulers, people and workers on one tree of tasks."""

from __future__ import annotations

import asyncio

from structlog.testing import capture_logs

from nova_workers.base.errors import Rejected
from nova_workers.contracts.http.tasks import TaskPatch
from nova_workers.domain.tasks.rules.service import PERSON
from tests.integration.scheduling.task_harness import TaskHarness
from tests.requirements import proves


@proves("work.once", "work.ended")
async def test_concurrent_changes_start_nothing_twice_and_do_not_deadlock(task_harness: TaskHarness) -> None:
    trees = [await task_harness.task("Sweep", "Mop", "Dust") for _ in range(3)]
    children = [await task_harness.subtask(tree, at) for tree in trees for at in range(2)]

    async def look() -> None:
        scheduler = task_harness.another()
        for _ in range(8):
            await scheduler.tick()

    async def change(number: int) -> None:
        for child in children[number::2]:
            try:
                await task_harness.tasks.update(
                    task_harness.tenant_id, PERSON, child.id, TaskPatch(title=f"By {number}")
                )
                await task_harness.tasks.cancel(task_harness.tenant_id, PERSON, child.id)
            except Rejected:
                pass

    async def work() -> None:
        for _ in range(8):
            await task_harness.harness.settle(*task_harness.harness.workers)
            await asyncio.sleep(0)

    with capture_logs() as logs:
        async with asyncio.timeout(60):
            await asyncio.gather(look(), look(), look(), change(0), change(1), work())
            await task_harness.work()
            await task_harness.work()
    assert {line["event"] for line in logs} >= {"task.begun"}
    assert [line for line in logs if line["log_level"] in {"error", "critical"}] == []
    for task in (*trees, *children):
        open_runs = await task_harness.harness.database.fetchval(
            "SELECT count(*) FROM runs WHERE thread_id = :thread_id AND status IN ('queued', 'running', 'waiting')",
            thread_id=(await task_harness.get(task)).thread_id,
        )
        assert open_runs == 0
    # Each tree was begun when it was made, for each change of it, and for the end of each subtask; never more.
    assert max([len(await task_harness.runs(tree)) for tree in trees]) <= 6
