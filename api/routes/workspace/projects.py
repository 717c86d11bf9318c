"""``/v1/projects``: agents, skills and triggers that people keep in a repository, planned and applied together."""

from typing import Annotated

from fastapi import APIRouter, Path

from nova_workers.base.errors import missing
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.projects import (
    ProjectApply,
    ProjectItemView,
    ProjectName,
    ProjectPlan,
    ProjectView,
)
from nova_workers.domain.projects import sql as ledger

from ...auth import ProjectsCaller, ProjectsReader
from ...json_body import StrictRoute
from ...openapi import problems
from ...pagination import PageQuery
from ...state import CAPABILITIES, State

PLAN_PATH = "/v1/projects/plan"
APPLY_PATH = "/v1/projects/apply"


class _ProjectRoute(StrictRoute):
    """A route that takes as many parts as thousands of items have."""

    max_parts = 250_000


router = APIRouter(prefix="/v1/projects", tags=["projects"], route_class=_ProjectRoute)

ProjectPath = Annotated[ProjectName, Path(description="A project's name.")]

_MOVE_PATIENCE_S = 0.0


@router.post("/plan", responses=problems(409, 410, body=True), dependencies=[CAPABILITIES])
async def plan_project(body: ProjectApply, caller: ProjectsCaller, state: State) -> ProjectPlan:
    """Show what applying a project would do now. Changes nothing, and refuses what applying refuses, but for drift."""
    return await state.services.projects.plan(caller.tenant_id, body, rights=caller.author)


@router.post("/apply", responses=problems(409, 410, 412, body=True), dependencies=[CAPABILITIES])
async def apply_project(body: ProjectApply, caller: ProjectsCaller, state: State) -> ProjectPlan:
    """Make the fleet what a project says, in one transaction: all of it, or nothing. Repeating it changes nothing.

    Each item needs the rights of its own request: for agents with more trust than `controlled`, or with directories,
    the scope `trust`, and for secrets the scope `secrets`.
    """
    services = state.services
    applied = await services.projects.apply(caller.tenant_id, body, rights=caller.author)
    for rename in applied.renames:
        await services.agent_moves.start(rename, patience_s=_MOVE_PATIENCE_S)
    return applied.plan


@router.get("", responses=problems(400, 422))
async def list_projects(caller: ProjectsReader, state: State, paging: PageQuery) -> Page[ProjectView]:
    """List projects that were applied, by name."""
    listing = paging.of(caller.tenant_id, "projects", str)
    async with state.services.database.connection() as connection:
        rows = await ledger.list_projects(connection, caller.tenant_id, after=listing.key, limit=listing.rows)
    return listing.page(rows, lambda project: project.project)


@router.get("/{project}/items", responses=problems(400, 404, 422), name="list_project_items")
async def list_items(
    project: ProjectPath, caller: ProjectsReader, state: State, paging: PageQuery
) -> Page[ProjectItemView]:
    """List what belongs to a project, by kind and name."""
    listing = paging.of_pairs(caller.tenant_id, "project_items", str, str, project)
    async with state.services.database.connection() as connection:
        rows = await ledger.list_items(connection, caller.tenant_id, project, after=listing.key, limit=listing.rows)
    if not rows and listing.key is None:
        raise missing("project", project)
    return listing.page(rows, lambda item: (item.kind, item.name))
