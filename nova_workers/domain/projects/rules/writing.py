"""Writes the steps of an apply, each through the rules of its subject. All in the transaction of the apply."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from nova_workers.base.errors import Conflict, Rejected
from nova_workers.base.vocabulary import ProjectItemKind
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.http.projects import ProjectSkill
from nova_workers.contracts.http.triggers import TriggerCreate, TriggerPatch
from nova_workers.domain.agents.rules.authors import AuthorRights
from nova_workers.domain.agents.rules.rights import GrantChecks
from nova_workers.domain.agents.rules.service import PERSON, Agents, Surroundings
from nova_workers.domain.agents.rules.skill_authors import put_skill_within
from nova_workers.domain.agents.sql.renames import Rename
from nova_workers.domain.projects.rules.documents import stored_trigger_document
from nova_workers.domain.projects.rules.planning import Step
from nova_workers.domain.projects.sql import AgentNow, Label
from nova_workers.domain.skills.rules.service import remove_skill_within
from nova_workers.domain.triggers.rules import definitions as triggers
from nova_workers.domain.triggers.sql.definitions import delete_trigger, lock_trigger
from nova_workers.ledger.database import Connection

FIELD_OF: Final[dict[ProjectItemKind, str]] = {"agent": "agents", "skill": "skills", "trigger": "triggers"}
"""The field of a request that has the items of a kind."""


@contextmanager
def naming(kind: ProjectItemKind, name: str) -> Generator[None]:
    """Let a refusal name the item, and its field within the project, such as ``agents.support.trust``."""
    try:
        yield
    except Rejected as error:
        inner = error.fields.get("field")
        place = ".".join(str(part) for part in (FIELD_OF[kind], name, inner) if part)
        message = f"{place}: {error.message.removeprefix(f'{inner}: ')}"
        raise type(error)(message, **{**error.fields, "field": place}) from error


@dataclass(frozen=True, slots=True)
class ProjectWriter:
    """Writes items of one tenant's project, with the rights of one author."""

    agents: Agents
    grants: GrantChecks
    tenant_id: str
    rights: AuthorRights

    async def rename(self, connection: Connection, agent: AgentNow, to_id: str) -> Rename:
        """Give an agent another id; see `Agents.begin_rename`."""
        return await self.agents.begin_rename_within(
            connection, self.tenant_id, agent.id, to_id, actor=PERSON, rights=self.rights, expected=agent.version
        )

    async def write(self, connection: Connection, steps: Sequence[Step], skills: Sequence[ProjectSkill]) -> list[Label]:
        """Write steps, in an order in which nothing is missing that another one needs.

        Args:
            skills: Those of the project, whose files a step has not.

        Returns:
            What the project says now of the things that were written.
        """
        made: dict[str, str] = {}
        given = {each.name: each for each in skills}
        for step in _of("trigger", steps, "delete"):
            with naming(step.kind, step.name):
                await delete_trigger(connection, self.tenant_id, _id_of(step))
        for step in _of("agent", steps, "delete"):
            with naming(step.kind, step.name):
                await self.agents.delete_within(connection, self.tenant_id, step.name)
        for step in _of("skill", steps):
            with naming(step.kind, step.name):
                await put_skill_within(
                    connection, self.tenant_id, step.name, given[step.name], rights=self.rights, grants=self.grants
                )
        agents = [(step, AgentSpec.model_validate(step.document)) for step in _of("agent", steps)]
        if agents:
            skill_names = sorted({name for _, spec in agents for name in spec.skills})
            around = await self.agents.surroundings(connection, self.tenant_id, skill_names)
            for step, spec in agents:
                with naming(step.kind, step.name):
                    await self._put_agent(connection, step, spec, around)
        for step in _of("skill", steps, "delete"):
            with naming(step.kind, step.name):
                await remove_skill_within(connection, self.tenant_id, step.name)
        for step in _of("trigger", steps):
            with naming(step.kind, step.name):
                made[step.name] = await self._put_trigger(connection, step)
        return [
            Label(step.kind, step.name, _new_id(step, made), dict(step.wanted))
            for step in steps
            if step.wanted is not None and step.action != "drift"
        ]

    async def _put_agent(self, connection: Connection, step: Step, spec: AgentSpec, around: Surroundings) -> None:
        if step.known is None or step.known.present is None:
            await self.agents.create_within(
                connection, self.tenant_id, step.name, spec, actor=PERSON, rights=self.rights, around=around
            )
        else:
            await self.agents.replace_within(
                connection,
                self.tenant_id,
                step.name,
                spec,
                actor=PERSON,
                rights=self.rights,
                expected=step.known.version,
                around=around,
            )

    async def _put_trigger(self, connection: Connection, step: Step) -> str:
        document, known = step.document or {}, step.known
        given = TriggerCreate.model_validate(document)
        if known is not None and (present := known.present) is not None:
            if present["agent_id"] == given.agent_id:
                now = await lock_trigger(connection, self.tenant_id, known.resource_id)
                if stored_trigger_document(now) != present:
                    raise Conflict("It was changed in this moment. Plan again.")
                changed = [name for name, value in document.items() if value != present.get(name)]
                patch = TriggerPatch.model_validate({name: getattr(given, name) for name in changed})
                await triggers.patch_trigger(connection, self.tenant_id, known.resource_id, patch)
                return known.resource_id
            # A trigger has one agent for all its occurrences.
            await delete_trigger(connection, self.tenant_id, known.resource_id)
        trigger = await triggers.create_trigger(
            connection, self.tenant_id, given, timezone=document["timezone"], by=PERSON
        )
        return trigger.id


def _of(kind: ProjectItemKind, steps: Sequence[Step], action: str | None = None) -> Iterator[Step]:
    """Yield the steps on items of a kind that write a document, or those with an action."""
    for step in steps:
        if step.kind == kind and (step.action == action if action else step.document is not None):
            yield step


def _id_of(step: Step) -> str:
    return "" if step.known is None else step.known.resource_id


def _new_id(step: Step, made: dict[str, str]) -> str:
    return made.get(step.name) or _id_of(step) if step.kind == "trigger" else step.name
