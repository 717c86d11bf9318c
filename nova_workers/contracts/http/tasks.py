"""The HTTP contract of tasks, shared with agents' tools. Inputs forbid unknown fields.

The limits are defined here, so that the API and the tools refuse the same input with the same message.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StrictBool, StringConstraints, model_validator

from nova_workers.base.vocabulary import OpenTaskStatus, ResourceKind, TaskStatus
from nova_workers.contracts.agents import AgentId
from nova_workers.contracts.authors.rights import ADDRESSEE, FREE, MESSAGE, PARTS, authored
from nova_workers.contracts.bodies import Body, View, is_one_line
from nova_workers.contracts.content import storable

__all__ = [
    "MAX_DESCRIPTION_CHARS",
    "MAX_DETAILS_CHARS",
    "MAX_OPEN_TASKS",
    "MAX_OUTCOME_CHARS",
    "MAX_RESOURCES",
    "MAX_STEPS",
    "MAX_STEP_TITLE_CHARS",
    "MAX_TASK_DEPTH",
    "MAX_TASK_ID",
    "MAX_TITLE_CHARS",
    "ResourceKind",
    "ResourceView",
    "StepId",
    "StepInput",
    "StepPatch",
    "StepView",
    "StepsReplace",
    "SubtaskCreate",
    "SubtaskView",
    "TaskChangeView",
    "TaskCreate",
    "TaskEnd",
    "TaskNumber",
    "TaskPatch",
    "TaskResourceAdd",
    "TaskStatus",
    "TaskSummary",
    "TaskView",
]


MAX_TASK_ID = 2**31 - 1
"""The largest value of its column."""
MAX_TITLE_CHARS = 200
MAX_DESCRIPTION_CHARS = 20_000
MAX_OUTCOME_CHARS = 20_000
MAX_STEPS = 200
MAX_STEP_TITLE_CHARS = 60
MAX_DETAILS_CHARS = 2_000
MAX_RESOURCES = 200
MAX_VALUE_CHARS = 2_000
MAX_TASK_DEPTH = 8
"""Levels of tasks, including the topmost."""
MAX_OPEN_TASKS = 10_000
"""Limit of a tenant's drafts and active tasks: it stops an agent that creates tasks in a loop."""


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    if not line:
        # str.split strips separators that pydantic does not, such as U+001F.
        raise ValueError("String should have at least 1 character that is not blank")
    if not is_one_line(line):
        raise ValueError("String should have no control characters")
    return line


_Title = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_TITLE_CHARS),
    AfterValidator(storable),
    AfterValidator(_one_line),
]
_StepTitle = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_STEP_TITLE_CHARS),
    AfterValidator(storable),
    AfterValidator(_one_line),
]
_Description = Annotated[str, StringConstraints(max_length=MAX_DESCRIPTION_CHARS), AfterValidator(storable)]
_Details = Annotated[str, StringConstraints(max_length=MAX_DETAILS_CHARS), AfterValidator(storable)]
_Outcome = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_OUTCOME_CHARS),
    AfterValidator(storable),
]

TaskNumber = Annotated[int, Field(ge=1, le=MAX_TASK_ID, description="The task's number.")]
StepId = Annotated[str, StringConstraints(pattern=r"^tst_[0-9A-Z]{26}$")]
_Revision = Annotated[
    int | None,
    Field(ge=1, le=MAX_TASK_ID, description="What you know of the task; refused where it has changed since."),
]


@authored(
    id=FREE,
    title=MESSAGE,
    details=MESSAGE,
    done=FREE,
)
class StepInput(Body):
    """A step of a plan. With the id of an existing step it updates that step."""

    id: Annotated[StepId | None, Field(description="Of a step that is there: it stays the same step.")] = None
    title: Annotated[_StepTitle, Field(description="What to do, in a few words.")]
    details: Annotated[_Details | None, Field(description="What else there is to know; left out, what it has.")] = None
    done: Annotated[StrictBool | None, Field(description="Left out, as it is. With a subtask it follows that.")] = None


Steps = Annotated[tuple[StepInput, ...], Field(max_length=MAX_STEPS)]


@authored(
    kind=MESSAGE,
    value=MESSAGE,
    title=MESSAGE,
)
class TaskResourceAdd(Body):
    """A URL or a path that a task works with."""

    kind: Annotated[ResourceKind, Field(description="url: an http or https address; file: a path.")]
    value: Annotated[
        str,
        StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_VALUE_CHARS),
        AfterValidator(storable),
        Field(description="The address, or the path."),
    ]
    title: Annotated[_Title | None, Field(description="What it is.")] = None

    @model_validator(mode="after")
    def _has_the_form_of_its_kind(self) -> Self:
        if any(ord(character) < 32 or ord(character) == 127 for character in self.value):
            raise ValueError("value: control characters and line breaks are in no address and no path")
        if self.kind == "url":
            _check_url(self.value)
        elif "://" in self.value:
            raise ValueError(f"value: {self.value[:80]!r} is an address; give it as kind 'url'")
        return self


def _check_url(value: str) -> None:
    try:
        parts = urlsplit(value)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or any(character.isspace() for character in value):
        raise ValueError(f"value: {value[:80]!r} is not an http or https address")


@authored(title=MESSAGE, description=MESSAGE, owner_agent_id=ADDRESSEE, status=FREE, steps=PARTS, resources=PARTS)
class TaskCreate(Body):
    """A new task."""

    title: Annotated[_Title, Field(description="What is to be reached, in a line.")]
    description: Annotated[_Description, Field(description="What the agent that works on it needs to know.")] = ""
    owner_agent_id: Annotated[AgentId, Field(description="The agent that works on it.")] = "nova"
    status: Annotated[OpenTaskStatus, Field(description="draft is still being planned, active is to be worked on.")] = (
        "draft"
    )
    steps: Annotated[Steps, Field(description="The plan, in order.")] = ()
    resources: Annotated[tuple[TaskResourceAdd, ...], Field(max_length=MAX_RESOURCES)] = ()


@authored(
    title=MESSAGE,
    description=MESSAGE,
    owner_agent_id=ADDRESSEE,
    status=FREE,
    revision=FREE,
)
class TaskPatch(Body):
    """Fields to change; omitted fields stay unchanged."""

    title: Annotated[_Title | None, Field(description="The new title.")] = None
    description: Annotated[_Description | None, Field(description="The new description.")] = None
    owner_agent_id: Annotated[AgentId | None, Field(description="The agent that works on it from now on.")] = None
    status: Annotated[
        TaskStatus | None, Field(description="active begins a draft. done and canceled end it for good.")
    ] = None
    revision: _Revision = None


@authored(
    outcome=MESSAGE,
)
class TaskEnd(Body):
    """The end of a task."""

    outcome: Annotated[_Outcome | None, Field(description="What came of it, or why it is canceled.")] = None


@authored(
    steps=PARTS,
    revision=FREE,
)
class StepsReplace(Body):
    """A complete new plan. Steps with an id are kept, steps without one are new, and omitted steps are deleted."""

    steps: Annotated[Steps, Field(description="The whole plan, in order.")]
    revision: _Revision = None


@authored(
    title=MESSAGE,
    details=MESSAGE,
    done=FREE,
)
class StepPatch(Body):
    """Fields of a step to change; omitted fields stay unchanged."""

    title: Annotated[_StepTitle | None, Field(description="The new title.")] = None
    details: Annotated[_Details | None, Field(description="The new details.")] = None
    done: Annotated[StrictBool | None, Field(description="Whether it is done. A step with a subtask follows that.")] = (
        None
    )


@authored(title=MESSAGE, description=MESSAGE, owner_agent_id=ADDRESSEE, status=FREE, steps=PARTS)
class SubtaskCreate(Body):
    """A new task that carries out a step of another task."""

    title: Annotated[_Title | None, Field(description="Left out: the step's title.")] = None
    description: Annotated[_Description | None, Field(description="Left out: the step's details.")] = None
    owner_agent_id: Annotated[AgentId | None, Field(description="Left out: the owner of the task.")] = None
    status: Annotated[
        OpenTaskStatus, Field(description="active is to be worked on; a draft waits to be activated.")
    ] = "active"
    steps: Annotated[Steps, Field(description="Its plan, in order.")] = ()


class SubtaskView(View):
    """The task that carries out a step."""

    id: int
    title: str
    status: TaskStatus
    owner_agent_id: str


class StepView(View):
    """A step of a plan. With a subtask, `done` follows that."""

    id: str
    title: str
    details: str
    done: bool
    subtask: SubtaskView | None


class ResourceView(View):
    """A URL or a path that a task works with."""

    id: str
    kind: ResourceKind
    value: str
    title: str | None
    created_at: datetime


class TaskSummary(View):
    """A task in a list."""

    id: int
    title: str
    status: TaskStatus
    owner_agent_id: str
    created_by: str
    """``person``, or the agent's id."""
    parent_task_id: int | None
    thread_id: str | None
    steps_done: int
    steps_total: int
    work_at: datetime | None
    """When work on it starts next automatically, within its tenant's hours; null if it does not."""
    parked_reason: str | None
    """Why the scheduler does not work on it although it is active."""
    waiting_for: str | None = None
    """What the active run of its thread waits for, in words, while it waits."""
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None


class TaskView(View):
    """A task."""

    id: int
    title: str
    description: str
    status: TaskStatus
    owner_agent_id: str
    created_by: str
    """``person``, or the agent's id."""
    revision: int
    """Grows with every change."""
    thread_id: str | None
    """Its dedicated thread, created when it is activated."""
    parent_task_id: int | None
    parent_step_id: str | None
    outcome: str | None
    steps: list[StepView]
    resources: list[ResourceView]
    work_at: datetime | None
    """When work on it starts next automatically, within its tenant's hours and after its current run; null if it does
    not."""
    working_run_id: str | None
    """The run that works on it, or the last one that did."""
    idle_invocations: int
    """How many consecutive runs changed nothing."""
    parked_reason: str | None
    """Why the scheduler does not work on it although it is active."""
    waiting_for: str | None = None
    """What the active run of its thread waits for, in words, while it waits."""
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None


class TaskChangeView(View):
    """One recorded change of a task. Immutable."""

    id: str
    task_id: int
    revision: int
    """The task's revision after the change."""
    kind: str
    actor: str
    """``person``, or the agent's id."""
    run_id: str | None
    """The run in which the agent made the change."""
    details: dict[str, Any]
    created_at: datetime
