"""Any order of changes to a tree of tasks, by people and agents: what holds of tasks, steps and history always holds.

`TEST_EXAMPLES=500 pytest tests/integration/workspace/test_task_tree.py` looks longer.
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
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from nova_workers.base.errors import Rejected
from nova_workers.contracts.http.tasks import (
    StepInput,
    StepPatch,
    StepsReplace,
    SubtaskCreate,
    TaskCreate,
    TaskPatch,
    TaskStatus,
    TaskView,
)
from nova_workers.domain.tasks.rules.rules import LEGAL_MOVES
from nova_workers.domain.tasks.rules.service import PERSON, TaskActor, Tasks
from nova_workers.ledger.database import Database, PostgresDatabase
from nova_workers.ledger.work import Work
from tests.integration.capabilities.tool_caller import add_tenants
from tests.requirements import proves

T = TypeVar("T")

TENANT = "ten_1"
_EXAMPLES = int(os.environ.get("TEST_EXAMPLES", "0"))
_TABLES = "tasks, task_steps, task_resources, task_changes, threads, runs"

_numbers = st.integers(1, 30)
"""Which task, counted around those that there are; 30 is none."""
_actors = st.sampled_from([PERSON, PERSON, TaskActor("a", "run_a", "thr_a"), TaskActor("b", "run_b", "thr_b")])
_owners = st.sampled_from(["a", "b"])
_places = st.integers(0, 3)
_marks = st.sampled_from([None, True, False])


class _Tree(RuleBasedStateMachine):
    def __init__(self, runner: asyncio.Runner, database: Database) -> None:
        super().__init__()
        self.runner = runner
        self.database = database
        self.tasks = Tasks(Work(database))
        self.highest = 0
        self.history: dict[str, Any] = {}
        self.stood: dict[int, TaskStatus] = {}

    def do(self, change: Coroutine[Any, Any, T]) -> T | None:
        """Make a change; None where it is refused."""
        try:
            return self.runner.run(change)
        except Rejected:
            return None

    def number(self, drawn: int) -> int:
        return drawn % self.highest + 1 if drawn < 30 else drawn

    def step(self, number: int, place: int) -> str:
        task = self.do(self.tasks.get(TENANT, number))
        return task.steps[place % len(task.steps)].id if task is not None and task.steps else "tst_none"

    @initialize()
    def clear(self) -> None:
        self.runner.run(self.database.execute(f"TRUNCATE {_TABLES} CASCADE"))
        self.runner.run(self.database.execute("UPDATE tenants SET next_task_id = 1"))
        self.create("a", PERSON, active=True, steps=3)

    @rule(owner=_owners, actor=_actors, active=st.booleans(), steps=_places)
    def create(self, owner: str, actor: TaskActor, active: bool, steps: int) -> None:
        given = TaskCreate(
            title="x",
            owner_agent_id=owner,
            status="active" if active else "draft",
            steps=tuple(StepInput(title=str(at)) for at in range(steps)),
        )
        made = self.do(self.tasks.create(TENANT, actor, given))
        assert made is not None
        assert made.id > self.highest
        self.highest = made.id

    @rule(number=_numbers, place=_places, actor=_actors, owner=_owners)
    def delegate(self, number: int, place: int, actor: TaskActor, owner: str) -> None:
        number = self.number(number)
        step_id = self.step(number, place)
        given = SubtaskCreate(owner_agent_id=owner, steps=(StepInput(title="deeper"),))
        made = self.do(self.tasks.plans.create_subtask(TENANT, actor, number, step_id, given))
        if made is not None:
            assert made.id > self.highest
            self.highest = made.id

    @rule(number=_numbers, status=st.sampled_from(["done", "canceled", "active", "draft"]), actor=_actors)
    def move(self, number: int, status: TaskStatus, actor: TaskActor) -> None:
        self.do(self.tasks.update(TENANT, actor, self.number(number), TaskPatch(status=status)))

    @rule(number=_numbers, owner=_owners, actor=_actors)
    def give(self, number: int, owner: str, actor: TaskActor) -> None:
        self.do(self.tasks.update(TENANT, actor, self.number(number), TaskPatch(owner_agent_id=owner)))

    @rule(number=_numbers, place=_places, done=_marks, actor=_actors)
    def mark(self, number: int, place: int, done: bool | None, actor: TaskActor) -> None:
        number = self.number(number)
        step_id = self.step(number, place)
        self.do(self.tasks.plans.update_step(TENANT, actor, number, step_id, StepPatch(done=done, title="y")))

    @rule(number=_numbers, places=st.lists(_places, max_size=4), done=_marks, actor=_actors)
    def replan(self, number: int, places: list[int], done: bool | None, actor: TaskActor) -> None:
        number = self.number(number)
        task = self.do(self.tasks.get(TENANT, number))
        present = [] if task is None else task.steps
        steps = tuple(
            StepInput(id=present[place].id if place < len(present) else None, title="z", done=done) for place in places
        )
        self.do(self.tasks.plans.replace_steps(TENANT, actor, number, StepsReplace(steps=steps)))

    @rule(number=_numbers)
    def lose_thread(self, number: int) -> None:
        task = self.do(self.tasks.get(TENANT, self.number(number)))
        if task is not None:
            self.runner.run(
                self.database.execute(
                    "UPDATE threads SET deleted_at = now() WHERE id = :thread_id", thread_id=task.thread_id
                )
            )

    @invariant()
    def holds(self) -> None:
        self.runner.run(self._check())

    async def _check(self) -> None:
        found = [await self.tasks.get(TENANT, each.id) for each in await self.tasks.list(TENANT, limit=200)]
        tasks = {task.id: task for task in found}
        for task in found:
            self._check_task(task, tasks)
            await self._check_history(task)
        threads = await self.database.fetch("SELECT task_id FROM threads WHERE task_id > 0 AND deleted_at IS NULL")
        assert len({row["task_id"] for row in threads}) == len(threads)

    def _check_task(self, task: TaskView, tasks: dict[int, TaskView]) -> None:
        before = self.stood.get(task.id, task.status)
        assert task.status == before or task.status in LEGAL_MOVES[before], (before, task)
        self.stood[task.id] = task.status
        assert (task.ended_at is not None) == (task.status in {"done", "canceled"})
        assert task.thread_id is not None or task.status in {"draft", "canceled"}
        if task.parent_task_id is not None:
            parent = tasks[task.parent_task_id]
            assert parent.id < task.id
            if task.status in {"draft", "active"}:
                assert parent.status == "active"
            linked = [step.id for step in parent.steps if step.subtask is not None and step.subtask.id == task.id]
            assert linked == ([] if task.status == "canceled" else [task.parent_step_id])
        for step in task.steps:
            if step.subtask is not None:
                subtask = tasks[step.subtask.id]
                assert (subtask.parent_task_id, subtask.parent_step_id) == (task.id, step.id)
                assert step.done == (subtask.status == "done")

    async def _check_history(self, task: TaskView) -> None:
        changes = await self.tasks.history(TENANT, task.id, limit=200)
        assert [change.revision for change in changes] == list(range(task.revision, 0, -1))
        for change in changes:
            assert self.history.setdefault(change.id, change) == change


@proves("tasks.tree")
@pytest.mark.hypothesis
def test_a_tree_of_tasks_is_consistent_under_any_order_of_changes(database_url: str) -> None:
    with asyncio.Runner() as runner:
        database = PostgresDatabase(database_url, pool_size=2)
        runner.run(add_tenants(database))
        try:
            # Hypothesis takes any factory; its annotation names the class only.
            factory = cast(type[RuleBasedStateMachine], lambda: _Tree(runner, database))
            run_state_machine_as_test(factory, settings=_profile())
        finally:
            runner.run(database.close())


def _profile() -> profile:
    return profile(
        max_examples=_EXAMPLES or 10,
        stateful_step_count=30,
        derandomize=not _EXAMPLES,
        phases=[Phase.generate, Phase.shrink] if _EXAMPLES else [Phase.generate],
        database=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
