"""The HTTP contract of projects: agents, skills and triggers that are kept in a repository, and applied together."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import ConfigDict, Field, StrictBool, StringConstraints

from nova_workers.base.vocabulary import OnDrift, ProjectAction, ProjectItemKind
from nova_workers.contracts.agents import AgentId
from nova_workers.contracts.authors.rights import FREE, PARTS, authored
from nova_workers.contracts.bodies import Body, View
from nova_workers.contracts.http.triggers import TriggerCreate
from nova_workers.contracts.http.wire import AgentCreate
from nova_workers.contracts.skills import SkillName, SkillPut

MAX_PROJECT_AGENTS = 1_000
MAX_PROJECT_SKILLS = 500
MAX_PROJECT_TRIGGERS = 5_000

ProjectName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
"""Lower case letters, digits and hyphens; unique within a tenant."""

TriggerKey = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=64)]
"""What a project calls a trigger; unique within the project."""


@authored(former_id=FREE)
class ProjectAgent(AgentCreate):
    """An agent of a project."""

    model_config = ConfigDict(defer_build=True)

    former_id: AgentId | None = None
    """The id that it had in the project before: it is renamed, and keeps its threads. Without effect afterwards."""


@authored(name=FREE)
class ProjectSkill(SkillPut):
    """A skill of a project."""

    name: SkillName


@authored(key=FREE, former_key=FREE)
class ProjectTrigger(TriggerCreate):
    """A trigger of a project."""

    key: TriggerKey
    former_key: TriggerKey | None = None
    """What the project called it before."""


@authored(
    project=FREE,
    agents=PARTS,
    skills=PARTS,
    triggers=PARTS,
    prune=FREE,
    on_drift=FREE,
    expect=FREE,
    allow_missing=FREE,
    hold=FREE,
)
class ProjectApply(Body):
    """All that a project contains, and what to do with what differs."""

    project: ProjectName
    agents: Annotated[tuple[ProjectAgent, ...], Field(max_length=MAX_PROJECT_AGENTS)] = ()
    skills: Annotated[tuple[ProjectSkill, ...], Field(max_length=MAX_PROJECT_SKILLS)] = ()
    triggers: Annotated[tuple[ProjectTrigger, ...], Field(max_length=MAX_PROJECT_TRIGGERS)] = ()
    prune: StrictBool = False
    """Delete what the project contained when it was last applied, and contains no longer."""
    on_drift: OnDrift = "refuse"
    """What happens to fields that were changed on the fleet since, and to things that were deleted there."""
    allow_missing: StrictBool = False
    """Apply although agents need tools or code in Python that no live worker has: their runs wait for one."""
    hold: Annotated[tuple[AgentId, ...], Field(max_length=MAX_PROJECT_AGENTS)] = ()
    """Agents that stay as they are, with their triggers, such as because an evaluation failed. A rename is done."""
    expect: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] | None = None
    """The digest of the plan that was read. Nothing is applied if there would be another one now."""


class ProjectField(View):
    """A field that differs between the fleet and the project."""

    field: str
    before: Any
    """The value on the fleet now; null where there is none."""
    after: Any
    """The value in the project; the fleet has it after an apply that does not keep drift."""
    drifted: bool
    """Whether it was changed on the fleet since the project was last applied."""


class ProjectStep(View):
    """What applying does with one item. Items that stay as they are have none."""

    kind: ProjectItemKind
    name: str
    """An agent's id, a skill's name, a trigger's key."""
    action: ProjectAction
    former_name: str | None = None
    drifted: bool = False
    """Whether it was changed or deleted on the fleet since the project was last applied."""
    fields: list[ProjectField] = Field(default_factory=list[ProjectField])
    """The differences of a thing that exists. A file beside a SKILL.md is a field ``files.PATH``, with its digest."""


class MissingCode(View):
    """What an agent needs of tools and code in Python, and no live worker has."""

    agent: str
    needs: list[str]
    """Such as ``the tool 'refund' of the project 'shop'``."""


class ProjectPlan(View):
    """What applying a project does, or has done."""

    project: str
    steps: list[ProjectStep]
    unchanged: int
    """The number of items that stay as they are."""
    drifted: int
    """The number of steps on items that were changed or deleted on the fleet."""
    refused: bool
    """Whether applying is refused because of them: decide with `on_drift`."""
    missing: list[MissingCode] = Field(default_factory=list[MissingCode])
    """Agents that would be made or changed and need what no live worker has. Applying is refused because of them,
    unless `allow_missing`."""
    digest: str
    """The digest of the steps: two equal plans have the same one."""
    applied: bool


class ProjectItemView(View):
    """A thing that belongs to a project."""

    kind: ProjectItemKind
    name: str
    resource_id: str
    """The agent's id, the skill's name, the trigger's id."""
    applied_at: datetime
    """When its configuration was last written by an apply."""


class ProjectView(View):
    """A project that was applied to the fleet."""

    project: str
    agents: int
    skills: int
    triggers: int
    applied_at: datetime
    """When one of its items was last written."""
