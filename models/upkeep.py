"""Progress of background work over whole tables."""

from datetime import datetime

from sqlalchemy import Index

from .base import Table
from .columns import boolean, fk, id_ref, string, time


class UpkeepCursor(Table, table=True):
    """Progress of a background pass over a tenant's rows. A worker leases it by moving its due time."""

    __tablename__ = "upkeep_cursors"
    __table_args__ = (Index(None, "work", "due_at"),)

    tenant_id: str = fk("tenants.id", primary=True)
    work: str = string(primary=True, comment="backfill, imports or threads")
    target: str = id_ref(primary=True, comment="The agent whose threads; the imported thread; empty for the backfill")
    variant: str = string(default="", comment="The embedding model that the pass uses")
    passed_at: datetime | None = time(null=True, comment="All rows up to here are done; null is from the beginning")
    passed_id: str | None = id_ref(null=True, comment="The last of them")
    behind: bool = boolean(default=True, comment="Whether there is more to do now")
    due_at: datetime = time(now=True, comment="When it is worked on next; while a worker does, the end of its lease")
    worked_at: datetime = time(now=True, comment="When a worker last took it")
