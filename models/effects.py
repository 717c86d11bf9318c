"""Effects of runs and the search data that they write; deliveries and memories."""

from datetime import datetime
from typing import Any

from pgvector.sqlalchemy import Vector
from sqlalchemy import Column, Computed, Index, literal_column, text
from sqlalchemy.dialects.postgresql import TSVECTOR
from sqlmodel import Field

from models.base import Table
from models.columns import boolean, count, fk, id_ref, json, one_of, pk, string, time
from nova_workers.vocabulary import OPEN_EFFECTS, DeliveryKind, DeliveryStatus, EffectKind, EffectStatus, sql_list

__all__ = ["MESSAGE_WORDS", "Delivery", "Effect", "Embedding", "Memory", "MessageText"]

MESSAGE_WORDS = """\
array_to_tsvector(ARRAY['@' || tenant_id, '@' || tenant_id || '/' || agent_id]) || to_tsvector('simple', content)"""
"""The words of a message, and two marks for its tenant and agent, so that the index finds one agent's words without
reading those of others. No word of a text begins with ``@``."""


class Effect(Table, table=True):
    """One piece of post-run work. A run's effects are executed in the order of `position`."""

    __tablename__ = "effects"
    __table_args__ = (
        one_of("kind", EffectKind),
        one_of("status", EffectStatus),
        Index("uq_effects__run_id_kind", "run_id", "kind", unique=True),
        # By kind first: what is due of one kind is found beside any number of another kind.
        Index(
            "ix_effects__due_of_kind",
            "kind",
            "due_at",
            postgresql_where=text(f"status IN {sql_list(OPEN_EFFECTS)}"),
        ),
        Index("ix_effects__over", "status", "done_at", postgresql_where=text("done_at IS NOT NULL")),
        {"postgresql_with": {"fillfactor": "80"}},
    )

    id: str = pk()
    tenant_id: str = id_ref()
    run_id: str = fk("runs.id")
    thread_id: str = id_ref()
    kind: str = string()
    position: int = count()
    status: str = string(default="pending")
    attempts: int = count()
    due_at: datetime = time(
        now=True, comment="Pending: earliest start. Running: end of its lease, after which it is due again"
    )
    error: str | None = string(null=True)
    created_at: datetime = time(now=True)
    done_at: datetime | None = time(null=True)


class MessageText(Table, table=True):
    """The text of one message, for search by words.

    Written after the run, so that no run waits for its index. The text search configuration is
    ``simple``, which is of no language: conversations are in any, and search by words is best at names, numbers and
    codes.
    """

    __tablename__ = "message_texts"
    __table_args__ = (
        Index(None, "thread_id"),
        # For the number of an agent's messages: the index of words would read all of them to count a thousand.
        Index(None, "tenant_id", "agent_id"),
        # Without `fastupdate` a search never has to read a list of words that are not in the index yet.
        Index("ix_message_texts__words", "words", postgresql_using="gin", postgresql_with={"fastupdate": "off"}),
    )

    message_id: str = fk("messages.id", primary=True)
    tenant_id: str = id_ref()
    agent_id: str = id_ref()
    thread_id: str = fk("threads.id")
    role: str = string(comment="user or assistant")
    content: str = string()
    said_at: datetime = time(comment="When the message was written")
    words: Any = Field(
        sa_column=Column(
            TSVECTOR,
            Computed(MESSAGE_WORDS, persisted=True),
            nullable=False,
            comment="Words of the content, and marks of its tenant and agent",
        )
    )


class Embedding(Table, table=True):
    """The vector of one message.

    The column has no fixed width, so that the provider can be switched; the HNSW index covers the width
    of the local model.
    """

    __tablename__ = "embeddings"
    __table_args__ = (
        Index("uq_embeddings__message_id_model", "message_id", "model", unique=True),
        Index(None, "thread_id"),
        # For an agent with few messages all vectors are compared; for one with many the HNSW index is used.
        Index(None, "tenant_id", "agent_id"),
        # In half precision the index is half as large and half as expensive to write, and finds the same messages. Of
        # unit length, since half precision ends at 65,504.
        Index(
            "ix_embeddings__hnsw_half_384",
            literal_column("(l2_normalize(embedding)::halfvec(384))").label("embedding_384"),
            postgresql_using="hnsw",
            postgresql_ops={"embedding_384": "halfvec_cosine_ops"},
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
    said_at: datetime = time(now=True, comment="When the message was written")
    created_at: datetime = time(now=True)


class Delivery(Table, table=True):
    """One item of the outbox or the inbox, delivered at least once."""

    __tablename__ = "deliveries"
    __table_args__ = (
        one_of("kind", DeliveryKind),
        one_of("status", DeliveryStatus),
        # By target first: a sender visits one target after the other, and skips a full or failing one in one step.
        Index("ix_deliveries__due", "target", "due_at", postgresql_where=text("status = 'pending'")),
        Index("ix_deliveries__inbox", "created_at", postgresql_where=text("target = 'user'")),
        Index(
            "ix_deliveries__over",
            "created_at",
            postgresql_where=text("target <> 'user' AND status IN ('delivered', 'failed', 'closed')"),
        ),
        Index("ix_deliveries__unrouted", "id", postgresql_where=text("target = 'user' AND NOT routed")),
        # The end of a run is delivered once to each target, however often it is attempted.
        Index(
            "uq_deliveries__run_end", "run_id", "target", unique=True, postgresql_where=text("kind = 'run_completed'")
        ),
        Index(None, "tenant_id", "target", "id"),
        Index(None, "tenant_id", "agent_id", "id"),
        Index(None, "run_id"),
    )

    id: str = pk()
    tenant_id: str = id_ref()
    run_id: str | None = id_ref(null=True)
    agent_id: str | None = id_ref(null=True)
    thread_id: str | None = id_ref(null=True)
    kind: str = string()
    target: str = string(comment="user is the inbox, else the id of a webhook or the name of a channel")
    payload: dict[str, Any] = json()
    status: str = string(default="pending")
    routed: bool = boolean(comment="For the inbox: whether each channel that receives it has a row")
    attempts: int = count()
    due_at: datetime = time(now=True, comment="Earliest attempt; during an attempt, the end of the sender's lease")
    webhook_id: str | None = id_ref(null=True, comment="The webhook that it is sent to, if any")
    response_status: int | None = count(null=True, default=None, comment="HTTP status of the latest answer")
    error: str | None = string(null=True)
    created_at: datetime = time(now=True)
    delivered_at: datetime | None = time(null=True)


class Memory(Table, table=True):
    """A fact that all agents of a tenant share."""

    __tablename__ = "memories"
    __table_args__ = (Index(None, "tenant_id", "id"),)

    id: str = pk()
    tenant_id: str = fk("tenants.id")
    agent_id: str = id_ref(comment="The agent that saved it")
    content: str = string()
    created_at: datetime = time(now=True)
