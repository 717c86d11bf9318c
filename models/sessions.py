"""What engines keep of conversations beside the ledger."""

from datetime import datetime
from typing import Any

from sqlalchemy import Index

from models.base import Table
from models.columns import fk, id_ref, json, pk, string, time

__all__ = ["EngineSession"]


class EngineSession(Table, table=True):
    """The transcript of an SDK that keeps its own, as one turn left it: what the turn added to its parent's."""

    __tablename__ = "engine_sessions"
    __table_args__ = (Index(None, "thread_id"),)

    id: str = pk()
    tenant_id: str = id_ref()
    thread_id: str = fk("threads.id")
    parent_id: str | None = id_ref(null=True, comment="Null where the entries are all there is")
    engine: str = string()
    entries: list[dict[str, Any]] = json(comment="In the SDK's own words")
    fingerprint: str = string(comment="Of the ledger's messages that the session tells")
    created_at: datetime = time(now=True)
