"""The rules of tasks, without a database."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nova_workers.base.errors import IllegalTransition, InvalidInput
from nova_workers.base.ids import new_id
from nova_workers.contracts.bodies import is_one_line
from nova_workers.contracts.http.tasks import (
    MAX_STEPS,
    StepInput,
    StepView,
    SubtaskView,
    TaskCreate,
    TaskResourceAdd,
    TaskStatus,
    TaskView,
)
from nova_workers.domain.prompts.rules.task import describe_task
from nova_workers.domain.tasks.rules.rules import LEGAL_MOVES, check_move, make_plan

STATES: tuple[TaskStatus, ...] = ("draft", "active", "done", "canceled")


def _step(title: str = "x", *, done: bool = False, subtask: SubtaskView | None = None) -> StepView:
    return StepView(id=new_id("tst"), title=title, details="", done=done, subtask=subtask)


def _subtask(status: TaskStatus = "active") -> SubtaskView:
    return SubtaskView(id=7, title="y", status=status, owner_agent_id="b")


def _task(**fields: Any) -> TaskView:
    given = {
        "id": 1,
        "title": "T",
        "description": "",
        "status": "active",
        "owner_agent_id": "a",
        "created_by": "person",
        "revision": 1,
        "thread_id": None,
        "parent_task_id": None,
        "parent_step_id": None,
        "outcome": None,
        "steps": [],
        "resources": [],
        "created_at": "2030-01-01T00:00:00Z",
        "updated_at": "2030-01-01T00:00:00Z",
        "ended_at": None,
        "work_at": None,
        "working_run_id": None,
        "idle_invocations": 0,
        "parked_reason": None,
    }
    return TaskView.model_validate({**given, **fields})


def test_every_status_lists_its_successors() -> None:
    assert set(LEGAL_MOVES) == set(STATES)
    assert {(here, there) for here in STATES for there in LEGAL_MOVES[here]} == {
        ("draft", "active"),
        ("draft", "canceled"),
        ("active", "done"),
        ("active", "canceled"),
    }


def test_an_illegal_transition_names_both_statuses_and_the_legal_ones() -> None:
    with pytest.raises(
        IllegalTransition, match=r"^Task 3 cannot go from 'draft' to 'done'\. It can become active or canceled\.$"
    ):
        check_move(3, "draft", "done")
    with pytest.raises(
        IllegalTransition, match=r"^Task 3 cannot go from 'done' to 'active'\. A task that is done stays so\.$"
    ):
        check_move(3, "done", "active")


def test_an_equal_plan_is_no_change() -> None:
    present = [_step("one"), _step("two", done=True)]
    plan = make_plan(1, present, [StepInput(id=step.id, title=step.title) for step in present])
    assert not plan.changes
    assert plan.details == {}


def test_only_changed_steps_are_written() -> None:
    present = [_step("one"), _step("two"), _step("three")]
    given = [StepInput(id=present[0].id, title="one"), StepInput(id=present[2].id, title="three")]
    plan = make_plan(1, present, given)
    assert plan.dropped == (present[1].id,)
    assert [(step.id, step.position) for step in plan.written] == [(present[2].id, 1)]


def test_a_linked_step_can_be_moved_and_edited_but_not_marked_or_removed() -> None:
    linked = _step("one", subtask=_subtask())
    plan = make_plan(1, [linked], [StepInput(title="zero"), StepInput(id=linked.id, title="eins", done=False)])
    assert [(step.title, step.position, step.done) for step in plan.written] == [("zero", 0, False), ("eins", 1, False)]
    with pytest.raises(IllegalTransition, match="is done by subtask 7, which is 'active'"):
        make_plan(1, [linked], [StepInput(id=linked.id, title="one", done=True)])
    with pytest.raises(IllegalTransition, match="has subtask 7 and cannot be dropped"):
        make_plan(1, [linked], [])
    done = _step("one", done=True, subtask=_subtask("done"))
    with pytest.raises(IllegalTransition, match="which is 'done'"):
        make_plan(1, [done], [StepInput(id=done.id, title="one", done=False)])


@given(st.data())
def test_a_plan_has_the_given_steps_and_keeps_every_link(data: st.DataObject) -> None:
    subtasks = st.one_of(st.none(), st.builds(_subtask))
    present = data.draw(st.lists(st.builds(_step, st.sampled_from("abc"), subtask=subtasks), max_size=6))
    picked = data.draw(st.lists(st.sampled_from([*present, None]), max_size=8)) if present else [None]
    inputs = [
        StepInput(id=None if step is None else step.id, title=data.draw(st.sampled_from("abc"))) for step in picked
    ]
    kept = [step.id for step in picked if step is not None]
    try:
        plan = make_plan(1, present, inputs)
    except InvalidInput:
        assert len(set(kept)) < len(kept)
        return
    except IllegalTransition:
        assert any(step.subtask is not None and step.id not in kept for step in present)
        return
    written = {step.id: (step.position, step.title, step.done) for step in plan.written}
    after = {
        step.id: (position, step.title, step.done)
        for position, step in enumerate(present)
        if step.id not in plan.dropped
    } | written
    ordered = sorted(after, key=lambda step_id: after[step_id][0])
    assert [after[step_id][:2] for step_id in ordered] == list(enumerate(given.title for given in inputs))
    assert [step_id for step_id in ordered if step_id in kept] == kept
    assert not {step.id for step in present if step.subtask is not None} & set(plan.dropped)


@pytest.mark.parametrize(
    "value",
    ["https://example.org", "http://10.0.0.1:8080/a?b=c#d", "https://xn--bcher-kva.example/", "HTTP://EXAMPLE.ORG"],
)
def test_valid_urls_are_accepted(value: str) -> None:
    assert TaskResourceAdd(kind="url", value=f" {value} ").value == value


@given(st.text(max_size=300))
@example("\x1f")
@example("\x00")
def test_any_text_is_valid_in_a_task(text: str) -> None:
    try:
        task = TaskCreate.model_validate(
            {"title": text, "description": text, "steps": [{"title": text[:60], "details": text}]}
        )
    except ValueError:
        assert len(text) > 200 or not text[:60].strip() or not is_one_line(text)
        return
    for stored in (task.title, task.description, task.steps[0].title, task.steps[0].details or ""):
        assert "\x00" not in stored
        stored.encode()
    assert task.title
    assert task.steps[0].title
    assert len(task.title.splitlines()) == 1


def test_the_description_of_the_longest_task_is_bounded() -> None:
    steps = [_step("x" * 60).model_copy(update={"details": "y" * 2_000}) for _ in range(MAX_STEPS)]
    task = _task(description="z" * 20_000, steps=steps)
    assert len(describe_task(task, details_chars=300)) < 110_000
    assert "y" * 2_000 in describe_task(task)


def test_the_description_of_an_empty_task_is_three_lines() -> None:
    assert describe_task(_task()) == "Task 1: T\nStatus: active\nOwner: a"
