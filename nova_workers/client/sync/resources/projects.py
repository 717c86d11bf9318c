# Generated from nova_workers/client/resources/projects.py by `make format`: change that file instead.
"""``/v1/projects`` of the client."""

from nova_workers.client.sync.transport import Transport
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.projects import ProjectApply, ProjectItemView, ProjectPlan, ProjectView


class Projects:
    """``/v1/projects``: agents, skills and triggers that are kept in a repository."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, limit: int | None = None, cursor: str | None = None) -> Page[ProjectView]:
        """Return a page of the projects that were applied, by name."""
        return self._transport.fetch(
            Page[ProjectView], "GET", "/v1/projects", params={"limit": limit, "cursor": cursor}
        )

    def items(self, project: str, *, limit: int | None = None, cursor: str | None = None) -> Page[ProjectItemView]:
        """Return a page of what belongs to a project, by kind and name."""
        return self._transport.fetch(
            Page[ProjectItemView], "GET", f"/v1/projects/{project}/items", params={"limit": limit, "cursor": cursor}
        )

    def plan(self, project: ProjectApply) -> ProjectPlan:
        """Return the steps that `apply` would do now; changes nothing."""
        return self._transport.fetch(ProjectPlan, "POST", "/v1/projects/plan", body=project)

    def apply(self, project: ProjectApply) -> ProjectPlan:
        """Make the fleet what a project says, whole or not at all; `Conflict` for drift, unless `on_drift` decides."""
        return self._transport.fetch(ProjectPlan, "POST", "/v1/projects/apply", body=project)
