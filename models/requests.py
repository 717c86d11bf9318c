"""What models were asked: one row a model call, and the parts of requests, each stored once."""

from datetime import datetime
from typing import Any

from sqlalchemy import Column, Index, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlmodel import Field

from nova_workers.base.vocabulary import RequestPartKind

from .base import Table
from .columns import Id, count, fk, id_ref, json, one_of, string, time


class ModelCall(Table, table=True):
    """The model call of a step: what it was asked with, and when."""

    __tablename__ = "model_calls"
    __table_args__ = (Index(None, "tenant_id", "form_id"),)

    turn_id: str = fk("turns.id", primary=True)
    step: int = count(default=None, primary=True)
    tenant_id: str = id_ref()
    form_id: str | None = id_ref(null=True, comment="In request_parts; null where the engine makes no requests")
    parent_turn_id: str | None = id_ref(null=True, comment="The turn whose conversation came before, at that time")
    requested_at: datetime | None = time(null=True)
    first_token_ms: int | None = count(null=True, default=None, comment="From the request until the response began")


class RequestPart(Table, table=True):
    """A part of requests: a section of a system prompt, a list of tools, or the form that names such parts."""

    __tablename__ = "request_parts"
    __table_args__ = (
        one_of("kind", RequestPartKind),
        # Finds the forms that name a part.
        Index(None, "parts", postgresql_using="gin", postgresql_where=text("parts IS NOT NULL")),
    )

    tenant_id: str = id_ref(primary=True)
    id: str = id_ref(primary=True, comment="Hash of its kind and content")
    kind: str = string()
    content: Any = json()
    parts: list[str] | None = Field(
        default=None, sa_column=Column(ARRAY(Id), nullable=True, comment="Of a form: the ids of its parts")
    )
    used_at: datetime = time(now=True, comment="When a worker last wrote it; a part that is not used is kept for hours")
