"""``/v1/skills``: the tenant's library of skills."""

from base64 import b64encode
from typing import Annotated

from fastapi import APIRouter, Path, Query

from nova_workers.contracts.bodies import Page
from nova_workers.contracts.skills import SkillDetail, SkillFileContent, SkillPut, SkillView
from nova_workers.domain.agents.rules.skill_authors import put_skill as put_checked_skill
from nova_workers.domain.skills import sql as ledger
from nova_workers.domain.skills.rules import service as workspace

from ...auth import WorkspaceCaller, WorkspaceReader
from ...json_body import StrictRoute
from ...openapi import problems
from ...pagination import PageQuery
from ...params import SkillNamePath
from ...state import CAPABILITIES, State

router = APIRouter(prefix="/v1/skills", tags=["skills"], route_class=StrictRoute)

NewName = Annotated[str, Path(description="The skill's name, as its front matter has it.")]
FileQuery = Annotated[
    str, Query(min_length=1, max_length=200, pattern=r"^[^\x00]+$", description="As the skill lists it.")
]


@router.get("", responses=problems(400, 422))
async def list_skills(caller: WorkspaceReader, state: State, paging: PageQuery) -> Page[SkillView]:
    """List skills, by name."""
    listing = paging.of(caller.tenant_id, "skills", str)
    async with state.services.database.connection() as connection:
        rows = await ledger.list_skills(connection, caller.tenant_id, after=listing.key, limit=listing.rows)
    return listing.page(rows, lambda skill: skill.name)


@router.get("/{name}", responses=problems(404))
async def get_skill(name: SkillNamePath, caller: WorkspaceReader, state: State) -> SkillDetail:
    """Get a skill with the text of its SKILL.md."""
    async with state.services.database.connection() as connection:
        return await ledger.get_skill(connection, caller.tenant_id, name)


@router.put("/{name}", responses=problems(409, body=True), dependencies=[CAPABILITIES])
async def put_skill(name: NewName, body: SkillPut, caller: WorkspaceCaller, state: State) -> SkillDetail:
    """Add a skill, or replace the whole skill of this name with its files.

    One of an agent with more trust than `controlled`, or with directories, needs the scope `trust`; one of an agent
    that uses secrets the scope `secrets`.
    """
    services = state.services
    return await put_checked_skill(
        services.database,
        caller.tenant_id,
        name,
        body,
        rights=caller.author,
        grants=services.capabilities,
    )


@router.delete("/{name}", status_code=204, responses=problems(404, 409))
async def delete_skill(name: SkillNamePath, caller: WorkspaceCaller, state: State) -> None:
    """Remove a skill that no agent has."""
    await workspace.remove_skill(state.services.database, caller.tenant_id, name)


@router.get("/{name}/file", responses=problems(404, 422))
async def get_skill_file(
    name: SkillNamePath, path: FileQuery, caller: WorkspaceReader, state: State
) -> SkillFileContent:
    """Get a file of a skill."""
    async with state.services.database.connection() as connection:
        file = await ledger.get_skill_file(connection, caller.tenant_id, name, path)
    return SkillFileContent(
        path=file.path,
        size_bytes=len(file.content),
        executable=file.executable,
        content_base64=b64encode(file.content).decode("ascii"),
    )
