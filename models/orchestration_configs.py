"""The configuration of orchestrations."""

from datetime import datetime

from .base import Table
from .columns import count, fk, string, time


class OrchestrationConfig(Table, table=True):
    """One version of a tenant's configuration of orchestrations. Immutable; the newest one applies."""

    __tablename__ = "orchestration_configs"

    tenant_id: str = fk("tenants.id", primary=True)
    version: int = count(default=None, primary=True)
    text: str = string(comment="YAML as its author wrote it")
    models_text: str = string(default="", comment="The models.yaml beside it")
    created_by: str = string(default="person", comment="person or discovery")
    created_at: datetime = time(now=True)
