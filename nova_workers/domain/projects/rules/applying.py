"""Applies a project: what its repository says of agents, skills and triggers, in one transaction.

Each change goes through the rules of its subject, with the rights of the one who applies. A plan does the same, and is
rolled back: what would be refused, is refused by the plan.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from nova_workers.base.errors import Conflict, InvalidInput
from nova_workers.base.vocabulary import ProjectAction
from nova_workers.contracts.http.projects import (
    MissingCode,
    ProjectApply,
    ProjectField,
    ProjectPlan,
    ProjectStep,
)
from nova_workers.contracts.http.triggers import Gate
from nova_workers.domain.agents.rules.authors import AuthorRights
from nova_workers.domain.agents.rules.rights import GrantChecks
from nova_workers.domain.agents.rules.service import Agents
from nova_workers.domain.agents.sql.renames import Rename
from nova_workers.domain.projects import sql as ledger
from nova_workers.domain.projects.rules.documents import agent_document, skill_document, trigger_document
from nova_workers.domain.projects.rules.missing import missing_code
from nova_workers.domain.projects.rules.planning import ItemId, Step, Wanted, digest_of, plan_steps
from nova_workers.domain.projects.rules.reading import read_known
from nova_workers.domain.projects.rules.writing import ProjectWriter, naming
from nova_workers.domain.projects.sql import AgentNow, Label
from nova_workers.domain.runs.sql.installs import installed_codes
from nova_workers.ledger.database import Connection, Database

_MOST_NAMED: Final = 5
_WRITES: Final = frozenset[ProjectAction]({"create", "update", "rename", "adopt"})


class _OnlyPlanned(Exception):
    """The transaction was tried, and is rolled back."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What an apply did, or would do.

    Attributes:
        renames: Agents that have another id now, whose rows are to be moved.
    """

    plan: ProjectPlan
    renames: tuple[Rename, ...] = ()


class Projects:
    """Plans and applies the projects of all tenants."""

    def __init__(
        self,
        database: Database,
        agents: Agents,
        grants: GrantChecks,
        *,
        timezone: str,
        check_gate: Callable[[Gate | None], None],
    ) -> None:
        """Keep what the rules need.

        Args:
            database: The ledger.
            agents: Changes agents.
            grants: Says which secrets agents use.
            timezone: The fleet's, for triggers without one.
            check_gate: Refuses a gate with an address that is never requested.
        """
        self._database = database
        self._agents = agents
        self._grants = grants
        self._timezone = timezone
        self._check_gate = check_gate

    async def plan(self, tenant_id: str, given: ProjectApply, *, rights: AuthorRights) -> ProjectPlan:
        """Return the steps that `apply` would do now. Changes nothing.

        Raises:
            Rejected: As `apply`, but for drift, missing code, and another plan than the expected one.
        """
        attempt = _Attempt(ProjectWriter(self._agents, self._grants, tenant_id, rights), given)
        try:
            async with self._database.transaction() as connection:
                await self._do(attempt, connection)
                raise _OnlyPlanned
        except _OnlyPlanned:
            return attempt.plan(applied=False)

    async def apply(self, tenant_id: str, given: ProjectApply, *, rights: AuthorRights) -> Applied:
        """Make the fleet what a project says: all of it, or nothing.

        Args:
            rights: What the author may give agents.

        Raises:
            InvalidInput: An item is invalid; names it, and the field.
            Forbidden: An item exceeds a ceiling of the tenant, or gives what its author may not give.
            Conflict: Things were changed on the fleet, and `on_drift` refuses that; an agent needs what no live worker
                has, without `allow_missing`; there would be another plan than `expect`; an item belongs to another
                project, or was changed in this moment.
            LimitExceeded: There would be too many of a kind.
        """
        attempt = _Attempt(ProjectWriter(self._agents, self._grants, tenant_id, rights), given)
        async with self._database.transaction() as connection:
            await self._do(attempt, connection)
            plan = attempt.plan(applied=True)
            if plan.refused:
                raise _drifted(attempt.steps)
            if plan.missing and not given.allow_missing:
                raise _missing(plan.missing)
            if given.expect is not None and given.expect != plan.digest:
                raise Conflict(
                    "The fleet was changed after the plan was read, and another plan applies now. Plan again.",
                    digest=plan.digest,
                )
        return Applied(plan, tuple(attempt.renames))

    async def _do(self, attempt: _Attempt, connection: Connection) -> None:
        given = attempt.given
        # Schedules and digests of thousands of items take a second: not on the loop.
        wanted = await asyncio.to_thread(self._wanted, given)
        await ledger.lock_project(connection, attempt.writer.tenant_id, given.project)
        await attempt.do(connection, wanted)

    def _wanted(self, given: ProjectApply) -> list[Wanted]:
        for trigger in given.triggers:
            with naming("trigger", trigger.key):
                self._check_gate(trigger.gate)
        return list(_wanted(given, timezone=self._timezone))


@dataclass(slots=True)
class _Attempt:
    """One apply, within its transaction."""

    writer: ProjectWriter
    given: ProjectApply
    steps: list[Step] = field(default_factory=list[Step])
    renames: list[Rename] = field(default_factory=list[Rename])
    unchanged: int = 0
    missing: list[MissingCode] = field(default_factory=list[MissingCode])

    async def do(self, connection: Connection, wanted: Sequence[Wanted]) -> None:
        tenant_id, project = self.writer.tenant_id, self.given.project
        before = await ledger.labels_of(connection, tenant_id, project)
        labels: dict[ItemId, Label] = {(each.kind, each.name): each for each in before}
        wanted = await self._renamed(connection, wanted, labels)
        known = await read_known(connection, tenant_id, project, wanted, labels)
        steps = await asyncio.to_thread(plan_steps, wanted, known, on_drift=self.given.on_drift, prune=self.given.prune)
        self.steps = [each for each in steps if not self._is_held(each)]
        changed = {(each.kind, each.name) for each in self.steps}
        self.unchanged = sum((each.kind, each.name) not in changed for each in wanted)
        await self._find_missing(connection)
        saved = await self.writer.write(connection, self.steps, self.given.skills)
        gone: list[ItemId] = [(each.kind, each.name) for each in self.steps if each.action in {"delete", "forget"}]
        former: list[ItemId] = [(each.kind, each.former) for each in wanted if each.former is not None]
        # Before the labels of new names: a thing has one.
        await ledger.forget_labels(connection, tenant_id, project, [*gone, *former])
        await ledger.save_labels(connection, tenant_id, project, saved)

    def plan(self, *, applied: bool) -> ProjectPlan:
        drifted = sum(each.drifted for each in self.steps)
        return ProjectPlan(
            project=self.given.project,
            steps=[_view(each) for each in self.steps],
            unchanged=self.unchanged,
            drifted=drifted,
            refused=bool(drifted) and self.given.on_drift == "refuse",
            missing=self.missing,
            digest=digest_of(self.steps),
            applied=applied,
        )

    def _is_held(self, step: Step) -> bool:
        """Return whether a step is of an agent that stays as it is."""
        agent = step.name if step.kind == "agent" else (step.wanted or {}).get("agent_id")
        return agent in self.given.hold

    async def _find_missing(self, connection: Connection) -> None:
        written = {each.name for each in self.steps if each.kind == "agent" and each.action in _WRITES}
        agents = [each for each in self.given.agents if each.id in written]
        workers = await installed_codes(connection) if agents else []
        found = ((each.id, missing_code(each, workers)) for each in agents)
        self.missing = [MissingCode(agent=agent_id, needs=needs) for agent_id, needs in found if needs]

    async def _renamed(
        self, connection: Connection, wanted: Sequence[Wanted], labels: dict[ItemId, Label]
    ) -> list[Wanted]:
        """Rename agents, and give labels the names that items have now.

        Returns:
            The items, of which those have a former name that take another one now.
        """
        ids = [name for each in wanted if each.kind == "agent" and each.former for name in (each.name, each.former)]
        agents = {each.id: each for each in await ledger.agents_now(connection, self.writer.tenant_id, ids)}
        items: list[Wanted] = []
        for item in wanted:
            label = labels.get((item.kind, item.former)) if item.former and item.former != item.name else None
            renamed = False
            if item.kind == "agent" and item.former and (agent := agents.get(item.former)) is not None:
                if agent.spec is not None and not _lives(agents.get(item.name)):
                    with naming("agent", item.name):
                        self.renames.append(await self.writer.rename(connection, agent, item.name))
                    renamed = True
                elif agent.renamed_to != item.name:
                    label = None
            if label is not None and (item.kind, item.name) not in labels:
                del labels[item.kind, label.name]
                resource_id = item.name if item.kind == "agent" else label.resource_id
                labels[item.kind, item.name] = replace(label, name=item.name, resource_id=resource_id)
                renamed = True
            items.append(item if renamed else replace(item, former=None))
        return items


def _lives(agent: AgentNow | None) -> bool:
    return agent is not None and agent.spec is not None


def _wanted(given: ProjectApply, *, timezone: str) -> Iterator[Wanted]:
    _require_distinct("agents", [each.id for each in given.agents])
    _require_distinct("skills", [each.name for each in given.skills])
    _require_distinct("triggers", [each.key for each in given.triggers])
    for agent in given.agents:
        yield Wanted("agent", agent.id, agent_document(agent), former=agent.former_id)
    for skill in given.skills:
        yield Wanted("skill", skill.name, skill_document(skill), is_whole=True)
    for trigger in given.triggers:
        with naming("trigger", trigger.key):
            document = trigger_document(trigger, timezone=timezone)
        yield Wanted("trigger", trigger.key, document, former=trigger.former_key)


def _require_distinct(name: str, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for each in names:
        if each in seen:
            raise InvalidInput(f"{name}.{each}: {each!r} is in the project twice.", field=f"{name}.{each}")
        seen.add(each)


def _drifted(steps: Sequence[Step]) -> Conflict:
    named = [f"{each.kind} {each.name!r}" for each in steps if each.drifted]
    shown = ", ".join(named[:_MOST_NAMED]) + (f" and {len(named) - _MOST_NAMED} more" if named[_MOST_NAMED:] else "")
    return Conflict(
        f"on_drift: {shown} changed on the fleet since the project was last applied. Nothing was applied. Take the "
        "changes over into the project, or apply with on_drift 'keep' or 'overwrite'.",
        field="on_drift",
        drifted=named,
    )


def _missing(agents: Sequence[MissingCode]) -> Conflict:
    named = [f"{each.agent!r} needs {', '.join(each.needs)}" for each in agents]
    shown = "; ".join(named[:_MOST_NAMED]) + (f"; and {len(named) - _MOST_NAMED} more" if named[_MOST_NAMED:] else "")
    return Conflict(
        f"allow_missing: no live worker has what agents need: {shown}. Nothing was applied. Start workers with it "
        "first, or apply with allow_missing: their runs wait for such a worker.",
        field=f"agents.{agents[0].agent}",
        missing=[each.model_dump(mode="json") for each in agents],
    )


def _view(step: Step) -> ProjectStep:
    return ProjectStep(
        kind=step.kind,
        name=step.name,
        action=step.action,
        former_name=step.former,
        drifted=step.drifted,
        fields=[
            ProjectField(field=each.field, before=each.before, after=each.after, drifted=each.drifted)
            for each in step.differences
        ],
    )
