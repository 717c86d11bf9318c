"""What belongs to projects, which people keep in repositories."""

from datetime import datetime
from typing import Any

from sqlalchemy import UniqueConstraint

from nova_workers.base.vocabulary import ProjectItemKind

from .base import Table
from .columns import fk, id_ref, json, one_of, string, time


class ProjectItem(Table, table=True):
    """An agent, a skill or a trigger that a project contains."""

    __tablename__ = "project_items"
    __table_args__ = (
        one_of("kind", ProjectItemKind),
        # A thing belongs to one project.
        UniqueConstraint("tenant_id", "kind", "resource_id"),
    )

    tenant_id: str = fk("tenants.id", primary=True)
    project: str = string(primary=True)
    kind: str = string(primary=True)
    name: str = string(primary=True, comment="An agent's id, a skill's name, a trigger's key in the project")
    resource_id: str = id_ref(comment="The agent's id, the skill's name, the trigger's id")
    applied: dict[str, Any] = json(comment="Its configuration as it was last applied; drift is what differs from it")
    applied_at: datetime = time(now=True)
