"""What follows a run: effects, the vectors they make, and deliveries."""

from datetime import datetime
from typing import Any

from pgvector.sqlalchemy import Vector
from sqlalchemy import Column, Index, literal_column, text
from sqlmodel import Field

from models.base import Table
from models.columns import count, fk, id_ref, json, pk, string, time
from models.enums import DeliveryStatus, EffectKind, EffectStatus, one_of

__all__ = ["Delivery", "Effect", "Embedding", "Memory"]


class Effect(Table, table=True):
    """One piece of post-run work. A run's effects are done in the order of `position`."""

    __tablename__ = "effects"
    __table_args__ = (
        one_of("kind", EffectKind),
        one_of("status", EffectStatus),
        Index("uq_effects__run_id_kind", "run_id", "kind", unique=True),
        Index("ix_effects__due", "due_at", postgresql_where=text("status IN ('pending', 'running')")),
        {"postgresql_with": {"fillfactor": "80"}},
    )

    id: str = pk()
    tenant_id: str = id_ref()
    run_id: str = fk("runs.id")
    thread_id: str = id_ref()
    kind: str = string()
    position: int = count()
    status: str = string(default=EffectStatus.PENDING.value)
    attempts: int = count()
    due_at: datetime = time(now=True, comment="Pending: not before. Running: its lease; then it is due again")
    error: str | None = string(null=True)
    created_at: datetime = time(now=True)
    done_at: datetime | None = time(null=True)


class Embedding(Table, table=True):
    """The vector of one message.

    The column has no fixed width, so that the provider can be switched; the HNSW index covers the width
    of the local model.
    """

    __tablename__ = "embeddings"
    __table_args__ = (
        Index("uq_embeddings__message_id_model", "message_id", "model", unique=True),
        Index(None, "thread_id"),
        Index(
            "ix_embeddings__hnsw_384",
            literal_column("(embedding::vector(384))").label("embedding_384"),
            postgresql_using="hnsw",
            postgresql_ops={"embedding_384": "vector_cosine_ops"},
            postgresql_where=text("dimensions = 384"),
        ),
    )

    id: str = pk()
    tenant_id: str = id_ref()
    agent_id: str = id_ref()
    thread_id: str = fk("threads.id")
    message_id: str = fk("messages.id")
    model: str = string()
    dimensions: int = count(default=None)
    embedding: Any = Field(sa_column=Column(Vector(), nullable=False))
    created_at: datetime = time(now=True)


class Delivery(Table, table=True):
    """Something to hand to the world outside, at least once."""

    __tablename__ = "deliveries"
    __table_args__ = (
        one_of("status", DeliveryStatus),
        Index("ix_deliveries__due", "due_at", postgresql_where=text("status = 'pending'")),
        Index(None, "tenant_id", "id"),
    )

    id: str = pk()
    tenant_id: str = id_ref()
    run_id: str | None = id_ref(null=True)
    agent_id: str | None = id_ref(null=True)
    thread_id: str | None = id_ref(null=True)
    kind: str = string(comment="notification, file or note")
    target: str = string()
    payload: dict[str, Any] = json()
    status: str = string(default=DeliveryStatus.PENDING.value)
    attempts: int = count()
    due_at: datetime = time(now=True)
    error: str | None = string(null=True)
    created_at: datetime = time(now=True)
    delivered_at: datetime | None = time(null=True)


class Memory(Table, table=True):
    """A fact that all agents of a tenant share."""

    __tablename__ = "memories"
    __table_args__ = (Index(None, "tenant_id", "id"),)

    id: str = pk()
    tenant_id: str = fk("tenants.id")
    agent_id: str = id_ref(comment="Who saved it")
    content: str = string()
    created_at: datetime = time(now=True)
