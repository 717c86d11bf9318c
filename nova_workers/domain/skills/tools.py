"""The `skills` capability: an agent reads the instructions of a skill when it needs them.

Never granted: a run gets it if its agent has skills and its engine does not load them itself. The prompt names them.
"""

from typing import Annotated, Any

from pydantic import Field, StringConstraints

from nova_workers.base.errors import ToolFailure
from nova_workers.domain.capabilities.rules.seam import (
    Capability,
    CapabilityContext,
    CapabilityParts,
    ToolCapability,
    ToolDeclaration,
    ToolInput,
)
from nova_workers.domain.skills.rules.service import loads_on_demand
from nova_workers.domain.skills.sql import get_skill_file, load_skills
from nova_workers.ledger.database import Database

_PAGE_CHARS = 50_000

_Name = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[^\x00]+$")]
_Path = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00]+$")]


class _Load(ToolInput):
    name: Annotated[_Name, Field(description="One of your skills.")]


class _Read(ToolInput):
    name: Annotated[_Name, Field(description="One of your skills.")]
    path: Annotated[_Path, Field(description="As skill_load lists it.")]
    offset: Annotated[int, Field(ge=0, le=10_000_000, description="First character to return; to read on.")] = 0


class _SkillTools:
    """An agent sees the skills that are assigned to it, and no others of the library."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def declare(self) -> tuple[ToolDeclaration[Any], ...]:
        return (
            ToolDeclaration(
                name="skill_load",
                description="Read the instructions of one of your skills, and which files it has.",
                input=_Load,
                run=self._load,
                idempotent=True,
                read_only=True,
            ),
            ToolDeclaration(
                name="skill_read_file",
                description="Read a text file of one of your skills.",
                input=_Read,
                run=self._read,
                idempotent=True,
                read_only=True,
            ),
        )

    async def _load(self, context: CapabilityContext, given: _Load) -> str:
        _require_own(context, given.name)
        async with self._database.connection() as connection:
            found = await load_skills(connection, context.tenant_id, [given.name])
        if not found:
            raise ToolFailure(f"Skill {given.name!r} was removed from the library. Go on without it.")
        (skill,) = found
        if not skill.files:
            return skill.body
        files = "\n".join(f"- {file.path} ({len(file.content)} bytes)" for file in skill.files)
        return f"{skill.body}\n\nFiles of this skill, which skill_read_file reads:\n{files}"

    async def _read(self, context: CapabilityContext, given: _Read) -> str:
        _require_own(context, given.name)
        async with self._database.connection() as connection:
            file = await get_skill_file(connection, context.tenant_id, given.name, given.path)
        try:
            text = file.content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ToolFailure(f"{given.path!r} is not text; it has {len(file.content)} bytes.") from error
        if given.offset and given.offset >= len(text):
            raise ToolFailure(f"{given.path!r} has {len(text)} characters; there is nothing at {given.offset}.")
        end = given.offset + _PAGE_CHARS
        piece = text[given.offset : end]
        return piece if end >= len(text) else f"{piece}\n\n[There is more: read on with offset={end}.]"


def _require_own(context: CapabilityContext, name: str) -> None:
    if name not in context.agent.skills:
        raise ToolFailure(f"You have no skill {name!r}. You have {', '.join(context.agent.skills)}.")


def capability(parts: CapabilityParts) -> Capability:
    """Return the capability."""

    def injected(context: CapabilityContext) -> bool:
        agent = context.agent
        return bool(agent.skills) and loads_on_demand(agent.engine or parts.settings.default_engine, agent.trust)

    return ToolCapability(
        "skills",
        "Instructions that the agent reads when it needs them, from the tenant's library of skills.",
        _SkillTools(parts.database).declare(),
        injected=injected,
    )
