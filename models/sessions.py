"""Sessions that engines keep beside the ledger."""

from datetime import datetime
from typing import Any

from sqlalchemy import Index

from .base import Table
from .columns import fk, id_ref, json, pk, string, time


class EngineSession(Table, table=True):
    """What one turn added to the transcript of an SDK that keeps its own."""

    __tablename__ = "engine_sessions"
    __table_args__ = (Index(None, "thread_id"),)

    id: str = pk()
    tenant_id: str = id_ref()
    thread_id: str = fk("threads.id")
    parent_id: str | None = id_ref(null=True, comment="Null if the entries are the whole transcript")
    engine: str = string()
    entries: list[dict[str, Any]] = json(comment="In the SDK's format")
    fingerprint: str = string(comment="Of the ledger's messages that the session contains")
    created_at: datetime = time(now=True)
