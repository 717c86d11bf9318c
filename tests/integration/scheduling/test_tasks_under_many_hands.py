"""Schedulers, people and workers at the same tree of tasks at once."""

from __future__ import annotations

import asyncio

from structlog.testing import capture_logs

from nova_workers.contracts.http.tasks import TaskPatch
from nova_workers.errors import Rejected
from nova_workers.workspace.tasks.service import PERSON
from tests.integration.scheduling.task_office import Office
from tests.requirements import proves


@proves("work.once", "work.ended")
async def test_nothing_is_begun_twice_and_nothing_locks_up(office: Office) -> None:
    trees = [await office.task("Sweep", "Mop", "Dust") for _ in range(3)]
    children = [await office.subtask(tree, at) for tree in trees for at in range(2)]

    async def look() -> None:
        scheduler = office.another()
        for _ in range(8):
            await scheduler.tick()

    async def change(number: int) -> None:
        for child in children[number::2]:
            try:
                await office.tasks.update(office.tenant_id, PERSON, child.id, TaskPatch(title=f"By {number}"))
                await office.tasks.cancel(office.tenant_id, PERSON, child.id)
            except Rejected:
                pass

    async def work() -> None:
        for _ in range(8):
            await office.harness.settle(*office.harness.workers)
            await asyncio.sleep(0)

    with capture_logs() as logs:
        async with asyncio.timeout(30):
            await asyncio.gather(look(), look(), look(), change(0), change(1), work())
            await office.work()
            await office.work()
    assert {line["event"] for line in logs} >= {"task.begun"}
    assert [line for line in logs if line["log_level"] in {"error", "critical"}] == []
    for task in (*trees, *children):
        open_runs = await office.harness.database.fetchval(
            "SELECT count(*) FROM runs WHERE thread_id = :thread_id AND status IN ('queued', 'running', 'waiting')",
            thread_id=(await office.get(task)).thread_id,
        )
        assert open_runs == 0
    # Each tree was begun when it was made, for each change of it, and for the end of each subtask; never more.
    assert max([len(await office.runs(tree)) for tree in trees]) <= 6
