"""What work orders are bound by: policies, and the secrets of their keys."""

from datetime import datetime
from typing import Any

from sqlalchemy import Column, Index, LargeBinary, UniqueConstraint
from sqlmodel import Field

from .base import Table
from .columns import count, fk, json, pk, string, time


class WorkOrderPolicy(Table, table=True):
    """One version of a tenant's policy of work orders. Immutable; the one with the greatest number applies."""

    __tablename__ = "work_order_policies"
    __table_args__ = (UniqueConstraint("tenant_id", "policy_id", "version"),)

    tenant_id: str = fk("tenants.id", primary=True)
    policy_id: str = string(primary=True)
    number: int = count(default=None, primary=True)
    version: str = string(comment="The document's own name of it")
    document: dict[str, Any] = json()
    created_at: datetime = time(now=True)


class WorkOrderSecret(Table, table=True):
    """A tenant's secret of the keys of work orders, encrypted with a key that is not in the database."""

    __tablename__ = "work_order_secrets"
    __table_args__ = (Index(None, "tenant_id", "id"),)

    id: str = pk()
    tenant_id: str = fk("tenants.id")
    ciphertext: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    key_id: str = string(comment="Id of the master key that encrypts it")
    created_at: datetime = time(now=True)
    expires_at: datetime | None = time(null=True, comment="End of its use, since a newer one replaces it")
