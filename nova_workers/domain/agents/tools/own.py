"""The `self` capability: an agent reads its own configuration, and changes its instructions and responsibilities."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from nova_workers.base.errors import NotFound
from nova_workers.contracts.agents import AgentSpec, Responsibility
from nova_workers.contracts.http.wire import AgentView
from nova_workers.domain.agents.rules.ceilings import CeilingRules
from nova_workers.domain.agents.rules.rules import title_key
from nova_workers.domain.agents.rules.service import Agents, Edit
from nova_workers.domain.capabilities.rules.agent_words import describe_agent, describe_duties
from nova_workers.domain.capabilities.rules.seam import (
    Capability,
    CapabilityContext,
    CapabilityParts,
    ToolCapability,
    ToolDeclaration,
    ToolInput,
)
from nova_workers.ledger.database import Connection

_Title = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
_Content = Annotated[str, StringConstraints(max_length=20_000)]


class _Read(ToolInput):
    pass


class _SetInstructions(ToolInput):
    instructions: Annotated[
        str, Field(max_length=200_000, description="The whole new text; what is left out of it is gone.")
    ]
    version: Annotated[
        int | None,
        Field(ge=1, le=2**31 - 1, description="As self_read gave it: refuses if you were changed since."),
    ] = None


class _Add(ToolInput):
    title: Annotated[_Title, Field(description="A few words in one line. No two of yours are the same.")]
    content: Annotated[_Content, Field(description="What to do, when, and how.")]


class _Update(ToolInput):
    title: Annotated[_Title, Field(description="Which; as self_read gives it.")]
    new_title: Annotated[_Title | None, Field(description="Leave it out to keep the title.")] = None
    content: Annotated[_Content | None, Field(description="The whole new text; leave it out to keep it.")] = None


class _Remove(ToolInput):
    title: Annotated[_Title, Field(description="Which; as self_read gives it.")]


class _SelfTools:
    """Each change is a version with the agent as its author. Only people change its identity, rights and bounds."""

    def __init__(self, agents: Agents) -> None:
        self._agents = agents

    def declare(self) -> tuple[ToolDeclaration[Any], ...]:
        return (
            ToolDeclaration(
                name="self_read",
                description="Read your own configuration as it stands: identity, instructions, responsibilities, "
                "capabilities, trust.",
                input=_Read,
                run=self._read,
                idempotent=True,
                read_only=True,
            ),
            ToolDeclaration(
                name="self_set_instructions",
                description="Replace your own instructions, from your next turn on. Read them first, and keep what "
                "still holds.",
                input=_SetInstructions,
                run=self._set_instructions,
                idempotent=True,
            ),
            ToolDeclaration(
                name="self_add_responsibility",
                description="Take on a duty, from your next turn on. Other agents see its title, nothing more.",
                input=_Add,
                run=self._add,
                idempotent=True,
            ),
            ToolDeclaration(
                name="self_update_responsibility",
                description="Change the title or the text of one of your duties, from your next turn on.",
                input=_Update,
                run=self._update,
                atomic=True,
            ),
            ToolDeclaration(
                name="self_remove_responsibility",
                description="Give up one of your duties, from your next turn on.",
                input=_Remove,
                run=self._remove,
                atomic=True,
            ),
        )

    async def _read(self, context: CapabilityContext, _: _Read) -> str:
        agent = await self._agents.get(context.tenant_id, context.agent_id)
        return f"{describe_agent(agent)}\n\n{describe_duties(agent.spec)}"

    async def _set_instructions(self, context: CapabilityContext, given: _SetInstructions) -> str:
        async def edit(_: Connection, agent: AgentView) -> AgentSpec:
            return agent.spec.model_copy(update={"instructions": given.instructions})

        return await self._change(context, edit, expected=given.version)

    async def _add(self, context: CapabilityContext, given: _Add) -> str:
        duty = Responsibility(title=given.title, content=given.content)

        async def edit(_: Connection, agent: AgentView) -> AgentSpec:
            if duty in agent.spec.responsibilities:
                return agent.spec
            return _with_duties(agent.spec, (*agent.spec.responsibilities, duty))

        return await self._change(context, edit)

    async def _update(self, context: CapabilityContext, given: _Update) -> str:
        async def edit(_: Connection, agent: AgentView) -> AgentSpec:
            duties = list(agent.spec.responsibilities)
            at = _find(duties, given.title)
            duties[at] = Responsibility(
                title=duties[at].title if given.new_title is None else given.new_title,
                content=duties[at].content if given.content is None else given.content,
            )
            return _with_duties(agent.spec, duties)

        return await self._change(context, edit)

    async def _remove(self, context: CapabilityContext, given: _Remove) -> str:
        async def edit(_: Connection, agent: AgentView) -> AgentSpec:
            duties = list(agent.spec.responsibilities)
            del duties[_find(duties, given.title)]
            return _with_duties(agent.spec, duties)

        return await self._change(context, edit)

    async def _change(self, context: CapabilityContext, edit: Edit, *, expected: int | None = None) -> str:
        who = context.agent_id
        agent = await self._agents.edit(context.tenant_id, who, edit, actor=who, expected=expected)
        return f"You are at version {agent.version} now. It holds from your next turn on; this one goes on as it began."


def _with_duties(spec: AgentSpec, duties: Sequence[Responsibility]) -> AgentSpec:
    return spec.model_copy(update={"responsibilities": tuple(duties)})


def _find(duties: Sequence[Responsibility], title: str) -> int:
    for index, duty in enumerate(duties):
        if title_key(duty.title) == title_key(title):
            return index
    known = ", ".join(repr(duty.title) for duty in duties) or "none"
    raise NotFound(f"You have no responsibility {title!r}. You have: {known}.", kind="responsibility", id=title)


def capability(parts: CapabilityParts) -> Capability:
    """Return the capability."""
    return ToolCapability(
        "self",
        "An agent's own instructions and responsibilities, to read and to change.",
        _SelfTools(Agents(parts.database, parts.grants, CeilingRules.of(parts.settings))).declare(),
    )
