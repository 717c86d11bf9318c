"""Where things go outside: webhooks, and the outbox rows on their way there."""

from datetime import datetime

from sqlalchemy import Column, Index, LargeBinary
from sqlmodel import Field

from models.base import Table
from models.columns import boolean, count, fk, id_ref, pk, string, time, words

__all__ = ["Webhook"]


class Webhook(Table, table=True):
    """An address that wants to hear of things. Signed as Standard Webhooks."""

    __tablename__ = "webhooks"
    __table_args__ = (Index(None, "tenant_id", "id"),)

    id: str = pk()
    tenant_id: str = fk("tenants.id")
    url: str = string()
    description: str = string(default="")
    kinds: list[str] = words(comment="What it wants; empty is all")
    agent_id: str | None = id_ref(null=True, comment="Only of this agent")
    enabled: bool = boolean(default=True)
    disabled_reason: str | None = string(null=True)
    failures: int = count(comment="Tries that failed in a row")
    failing_since: datetime | None = time(null=True, comment="When the first of them did")
    rests_until: datetime | None = time(null=True, comment="Nothing is sent there before")
    secret: bytes = Field(sa_column=Column(LargeBinary, nullable=False, comment="Encrypted as secrets are"))
    key_id: str = string(comment="Which master key it is encrypted with")
    previous_secret: bytes | None = Field(
        default=None, sa_column=Column(LargeBinary, nullable=True, comment="Signs too, until it expires")
    )
    previous_expires_at: datetime | None = time(null=True)
    created_at: datetime = time(now=True)
    updated_at: datetime = time(now=True)
