"""The `agent-management` capability: an agent creates, changes and deletes other agents."""

from typing import Annotated, Any

from pydantic import Field, StringConstraints, model_validator

from nova_workers.base.errors import InvalidInput, NotFound
from nova_workers.contracts.agents import AgentId, AgentSpec, Responsibility, SubagentName, SubagentSpec
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.http.wire import AgentView
from nova_workers.contracts.skills import SkillNames
from nova_workers.domain.agents.rules.ceilings import CeilingRules
from nova_workers.domain.agents.rules.rights import GrantRules, check_change, check_manages, granted, inherited
from nova_workers.domain.agents.rules.rules import title_key
from nova_workers.domain.agents.rules.service import Agents
from nova_workers.domain.agents.sql import records as ledger
from nova_workers.domain.capabilities.rules.agent_words import describe_agent
from nova_workers.domain.capabilities.rules.seam import (
    Capability,
    CapabilityContext,
    CapabilityParts,
    ToolCapability,
    ToolDeclaration,
    ToolInput,
)
from nova_workers.ledger.database import Connection

_FOR_PEOPLE = frozenset(
    {"trust", "permissions", "directories", "engine", "engine_config", "max_turns", "max_tokens", "output_schema"}
    | {"thinking_budget_tokens", "token_budget", "cost_budget_usd", "max_running", "max_cost_usd_per_day"}
    | {"retention", "temperature", "timeout_s"}
)
_FLEET_DEFAULT = "default"

_Id = Annotated[AgentId, Field(description="The agent's id: lower case letters, digits and hyphens.")]
_Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
_Title = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
_Grants = Annotated[
    dict[str, list[str] | None],
    Field(
        max_length=100,
        description="By name, all that it is to have: null for all its tools, or a list of those allowed. You can only "
        "grant what you have yourself.",
    ),
]


class _List(ToolInput):
    limit: Annotated[int, Field(ge=1, le=200, description="Most agents to return.")] = 50
    after: Annotated[AgentId | None, Field(description="Only agents whose id comes after this one; to see more.")] = (
        None
    )


class _Get(ToolInput):
    id: _Id


class _Described(ToolInput):
    """Fields of both a new and a changed agent."""

    description: Annotated[
        str | None, Field(max_length=2_000, description="What it is for; other agents choose it by this.")
    ] = None
    identity: Annotated[str | None, Field(max_length=100_000, description="Who it is: expertise, manner, method.")] = (
        None
    )
    instructions: Annotated[str | None, Field(max_length=200_000, description="How it works.")] = None
    capabilities: _Grants | None = None
    skills: Annotated[SkillNames | None, Field(description="All that it is to have, of the library.")] = None
    model: Annotated[
        _Name | None, Field(description=f"A model or an alias; {_FLEET_DEFAULT!r} for the fleet's default.")
    ] = None
    subagents: Annotated[
        dict[SubagentName, SubagentSpec] | None, Field(max_length=50, description="All its helpers, by name.")
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_fields_for_people(cls, given: Any) -> Any:
        for field in sorted(_FOR_PEOPLE & set(given)) if isinstance(given, dict) else ():
            raise ValueError(f"{field} is set by people only, not by a tool. Ask a person, and leave it out")
        return given


class _Create(_Described):
    id: _Id
    name: Annotated[_Name, Field(description="What people call it.")]
    responsibilities: Annotated[
        list[Responsibility] | None, Field(max_length=100, description="Its duties; no two titles are the same.")
    ] = None


class _Update(_Described):
    id: _Id
    name: Annotated[_Name | None, Field(description="What people call it.")] = None
    set_responsibilities: Annotated[
        list[Responsibility] | None, Field(max_length=100, description="Duties to add, or to replace by their title.")
    ] = None
    remove_responsibilities: Annotated[
        list[_Title] | None, Field(max_length=100, description="Titles of duties to take away.")
    ] = None
    version: Annotated[
        int | None,
        Field(ge=1, le=2**31 - 1, description="As agent_get gave it: refuses if the agent was changed since."),
    ] = None


class _AgentTools:
    """Rights come from the manager's newest version: it cannot grant what was revoked meanwhile."""

    def __init__(self, agents: Agents, grants: GrantRules) -> None:
        self._agents = agents
        self._grants = grants

    def declare(self) -> tuple[ToolDeclaration[Any], ...]:
        return (
            ToolDeclaration(
                name="agent_list",
                description="List all agents: id, name, version, trust, what each is for.",
                input=_List,
                run=self._list,
                idempotent=True,
                read_only=True,
            ),
            ToolDeclaration(
                name="agent_get",
                description="Read an agent's configuration; of its responsibilities the titles.",
                input=_Get,
                run=self._get,
                idempotent=True,
                read_only=True,
            ),
            ToolDeclaration(
                name="agent_create",
                description="Make an agent. It starts in the sandbox; trust, permissions and directories are for "
                "people to give.",
                input=_Create,
                run=self._create,
                atomic=True,
            ),
            ToolDeclaration(
                name="agent_update",
                description="Change an agent of no more trust than yours; what it does, only if it has no right that "
                "you lack. What you leave out stays. It holds in turns that begin afterwards.",
                input=_Update,
                run=self._update,
                atomic=True,
            ),
            ToolDeclaration(
                name="agent_delete",
                description="Delete an agent of no more trust than yours. Its conversations stay readable.",
                input=_Get,
                run=self._delete,
                atomic=True,
            ),
        )

    async def _list(self, context: CapabilityContext, given: _List) -> str:
        agents = await self._agents.list(context.tenant_id, after=given.after, limit=given.limit)
        lines = [_line(agent) for agent in agents]
        if len(agents) == given.limit:
            lines.append(f"There may be more: ask with after={agents[-1].id}.")
        return "\n".join(lines) or "There are no agents here."

    async def _get(self, context: CapabilityContext, given: _Get) -> str:
        return describe_agent(await self._agents.get(context.tenant_id, given.id))

    async def _create(self, context: CapabilityContext, given: _Create) -> str:
        maker = (await self._agents.get(context.tenant_id, context.agent_id)).spec
        bare = AgentSpec.model_validate({"name": given.name, **inherited(maker)})
        fields = _fields(given, maker, bare) | {"responsibilities": tuple(given.responsibilities or ())}
        spec = bare.model_copy(update=fields)
        check_change(maker, None, spec, self._grants)
        agent = await self._agents.create(context.tenant_id, given.id, spec, actor=context.agent_id)
        return f"Made agent {agent.id!r}, version {agent.version}. It is in the sandbox; a person can give it more."

    async def _update(self, context: CapabilityContext, given: _Update) -> str:
        async def edit(connection: Connection, agent: AgentView) -> AgentSpec:
            manager = await self._manager(connection, context, agent)
            fields = _fields(given, manager, agent.spec) | {"responsibilities": _duties(given, agent.spec)}
            spec = agent.spec.model_copy(update=fields)
            check_change(manager, agent.spec, spec, self._grants)
            return spec

        agent = await self._agents.edit(
            context.tenant_id, given.id, edit, actor=context.agent_id, expected=given.version
        )
        return f"Agent {agent.id!r} is at version {agent.version}."

    async def _delete(self, context: CapabilityContext, given: _Get) -> str:
        async def permit(connection: Connection, agent: AgentView) -> None:
            await self._manager(connection, context, agent)

        await self._agents.delete(context.tenant_id, given.id, permit)
        return f"Deleted agent {given.id!r}."

    async def _manager(self, connection: Connection, context: CapabilityContext, target: AgentView) -> AgentSpec:
        manager = await ledger.get_agent(connection, context.tenant_id, context.agent_id)
        check_manages(manager, target)
        return manager.spec


def _fields(given: _Create | _Update, manager: AgentSpec, target: AgentSpec) -> JsonObject:
    """Return the given fields in the form of an `AgentSpec`."""
    plain = ("name", "description", "identity", "instructions", "subagents")
    fields = {name: getattr(given, name) for name in plain if getattr(given, name) is not None}
    if given.capabilities is not None:
        fields["capabilities"] = granted(given.capabilities, manager, target)
    if given.skills is not None:
        fields["skills"] = given.skills
    if given.model is not None:
        fields["model"] = None if given.model == _FLEET_DEFAULT else given.model
    return fields


def _duties(given: _Update, target: AgentSpec) -> tuple[Responsibility, ...]:
    duties = {title_key(duty.title): duty for duty in target.responsibilities}
    for title in given.remove_responsibilities or ():
        if duties.pop(title_key(title), None) is None:
            known = ", ".join(repr(duty.title) for duty in target.responsibilities) or "none"
            text = f"remove_responsibilities: it has none with the title {title!r}. It has: {known}."
            raise NotFound(text, kind="responsibility", id=title)
    fresh = given.set_responsibilities or ()
    if len({title_key(duty.title) for duty in fresh}) < len(fresh):
        raise InvalidInput("set_responsibilities: two have the same title; rename one.", field="set_responsibilities")
    return tuple((duties | {title_key(duty.title): duty for duty in fresh}).values())


def _line(agent: AgentView) -> str:
    spec = agent.spec
    return f"{agent.id} (version {agent.version}, {spec.trust}): {spec.name}. {spec.description or 'No description.'}"


def capability(parts: CapabilityParts) -> Capability:
    """Return the capability."""
    return ToolCapability(
        "agent-management",
        "Makes, changes and deletes other agents, within the rights of the agent that has it.",
        _AgentTools(Agents(parts.database, parts.grants, CeilingRules.of(parts.settings)), parts.grants).declare(),
    )
