"""Who may ask: tenants and their API keys."""

from datetime import datetime

from sqlalchemy import Column, Index, LargeBinary
from sqlmodel import Field

from models.base import Table
from models.columns import count, fk, pk, string, time, words

__all__ = ["ApiKey", "Tenant"]


class Tenant(Table, table=True):
    """An isolated customer of the fleet. Every other row belongs to one."""

    __tablename__ = "tenants"

    id: str = pk()
    name: str = string()
    next_task_id: int = count(default=1, comment="The number of the next task")
    created_at: datetime = time(now=True)


class ApiKey(Table, table=True):
    """A bearer key. Only its SHA-256 is kept: 256 random bits need no slow hash."""

    __tablename__ = "api_keys"
    __table_args__ = (Index(None, "hash", unique=True), Index(None, "tenant_id", "id"))

    id: str = pk()
    tenant_id: str = fk("tenants.id")
    name: str = string()
    prefix: str = string(comment="First characters of the key, to recognise it by")
    hash: bytes = Field(sa_column=Column(LargeBinary, nullable=False, comment="SHA-256 of the whole key"))
    scopes: list[str] = words(comment="See contracts.wire.Scope; read and write in one")
    created_at: datetime = time(now=True)
    expires_at: datetime | None = time(null=True)
    revoked_at: datetime | None = time(null=True)
