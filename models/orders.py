"""Work orders: validated requests, the model jobs that execute them, and what was recorded about them."""

from datetime import datetime
from typing import Any

from sqlalchemy import Column, ForeignKeyConstraint, Index, LargeBinary, text
from sqlmodel import Field

from nova_workers.base.vocabulary import OrderState, RoleKind, TrailAudience, WorkStopReason

from .base import Table
from .columns import big, boolean, count, fk, id_ref, json, money, number, one_of, pk, string, time


def _sealed(comment: str) -> Any:
    return Field(default=None, sa_column=Column(LargeBinary, nullable=True, comment=comment))


class WorkOrder(Table, table=True):
    """A work order. Its content exists only encrypted, under a key that is destroyed when the order ends."""

    __tablename__ = "work_orders"
    __table_args__ = (
        one_of("state", OrderState),
        one_of("stage", RoleKind),
        one_of("stop_reason", WorkStopReason),
        Index(None, "tenant_id", "id"),
        Index("ix_work_orders__review", "tenant_id", "id", postgresql_where=text("state = 'review'")),
        Index("ix_work_orders__open", "id", postgresql_where=text("state <> 'ended'")),
        Index("ix_work_orders__ended_at", "ended_at", postgresql_where=text("state = 'ended'")),
    )

    id: str = pk()
    tenant_id: str = fk("tenants.id")
    scope: str = string()
    policy_id: str = string()
    policy_version: str = string()
    schema_version: str = string(comment="Of the kind of artifact")
    trace: dict[str, Any] = json(comment="contracts.orders.EngineTrace, as the caller gave it")
    presentation_mode: str | None = string(null=True)
    customer_trail: bool = boolean(comment="Whether the customer trail is recorded")
    internal_trail: bool = boolean(comment="Whether the internal trail is recorded")
    traceparent: str | None = string(null=True)
    fingerprint: str = string(comment="HMAC of the content under its key, which the end destroys")
    state: str = string(default="running")
    stage: str = string(default="craft")
    round: int = count(default=1, comment="The present round (swirl), from 1")
    max_rounds: int = count(default=None)
    max_tokens: int = big(default=None)
    max_cost_usd: Any = money(null=False)
    least_output_tokens: int = count(default=None, comment="A call that could afford less is not made")
    ttl_hours: float = number(comment="How long an equal order gets the same result")
    deadline_at: datetime = time()
    data_key: bytes | None = _sealed("Key of the sealed columns, encrypted with a master key; null after the end")
    data_key_id: str | None = string(null=True, comment="Which master key")
    sealed: bytes | None = _sealed("Order and policy, encrypted; null after the end")
    sealed_draft: bytes | None = _sealed("The outcome that a person reviews, encrypted; null after the end")
    stop_reason: str | None = string(null=True, comment="Why it ended, before the mapping for customers")
    needs_human: bool = boolean()
    outcome: dict[str, Any] | None = json(null=True, comment="orders.outcome.Outcome: customer-safe artifacts, figures")
    review_due_at: datetime | None = time(null=True)
    reviewed: str | None = string(null=True, comment="How a person decided: approve, edit, reject or expired")
    reviewed_by: str | None = id_ref(null=True, comment="The key of that person")
    created_at: datetime = time(now=True)
    ended_at: datetime | None = time(null=True)


class WorkOrderKey(Table, table=True):
    """Which order equal orders share: the live one of a key hash. Another version of policy or schema has another."""

    __tablename__ = "work_order_keys"
    __table_args__ = (
        ForeignKeyConstraint(["order_id"], ["work_orders.id"], ondelete="CASCADE"),
        Index(None, "order_id"),
        Index(None, "expires_at"),
    )

    tenant_id: str = id_ref(primary=True)
    key_hash: str = string(primary=True)
    policy_version: str = string(primary=True)
    schema_version: str = string(primary=True)
    order_id: str = id_ref()
    expires_at: datetime = time(comment="Infinity while the order is open")


class WorkOrderPart(Table, table=True):
    """One model job of an order: one role, in one round. It is executed by one run."""

    __tablename__ = "work_order_parts"
    __table_args__ = (
        one_of("kind", RoleKind),
        one_of("stop_reason", WorkStopReason),
        Index(None, "order_id", "id"),
        Index("uq_work_order_parts__run_id", "run_id", unique=True),
        # A stage is opened once.
        Index("uq_work_order_parts__position", "order_id", "round", "kind", "position", unique=True),
        Index("ix_work_order_parts__open", "order_id", postgresql_where=text("stop_reason IS NULL")),
    )

    id: str = pk()
    tenant_id: str = id_ref()
    order_id: str = fk("work_orders.id")
    run_id: str = id_ref()
    kind: str = string()
    role: str = string(comment="Its name in the policy")
    round: int = count(default=None)
    position: int = count(default=None, comment="Within kind and round, from 0")
    attempts: int = count(comment="Grows when a worker begins it; fences writes of earlier attempts")
    calls: int = count(comment="Model calls, without those that are lost")
    reserved_tokens: int = big(comment="Of the call in progress, at worst")
    reserved_usd: Any = money(null=False)
    lost_tokens: int = big(comment="At worst, of calls whose worker crashed; they count for the caps of the order")
    lost_usd: Any = money(null=False, default=0)
    used_tokens: int = big()
    used_usd: Any = money(null=False)
    usage: dict[str, Any] = json(default="'{}'", comment="contracts.usage.TokenUsage")
    engine: str | None = string(null=True)
    model: str | None = string(null=True)
    provider: str | None = string(null=True)
    sealed_output: bytes | None = _sealed("Its answer, encrypted; null after the order's end")
    fingerprint: str | None = string(null=True, comment="HMAC of its answer, or of the provider's error")
    confidence: float | None = number(null=True)
    approved: bool | None = Field(default=None)
    stop_reason: str | None = string(null=True, comment="Null while it is open")
    created_at: datetime = time(now=True)
    ended_at: datetime | None = time(null=True)


class WorkOrderTrail(Table, table=True):
    """What happened to an order. Append-only; no content of orders, prompts or answers."""

    __tablename__ = "work_order_trail"
    __table_args__ = (one_of("audience", TrailAudience), Index(None, "order_id", "id"))

    id: str = pk()
    tenant_id: str = id_ref()
    order_id: str = fk("work_orders.id")
    audience: str = string()
    event: str = string()
    data: dict[str, Any] = json(default="'{}'")
    created_at: datetime = time(now=True)
