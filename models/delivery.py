"""Destinations outside the fleet: webhooks, and addresses that get the changes of one run."""

from datetime import datetime

from sqlalchemy import Column, Index, LargeBinary
from sqlmodel import Field

from .base import Table
from .columns import boolean, count, fk, id_ref, pk, string, time, words


class Webhook(Table, table=True):
    """A URL that receives events, signed as Standard Webhooks."""

    __tablename__ = "webhooks"
    __table_args__ = (Index(None, "tenant_id", "id"),)

    id: str = pk()
    tenant_id: str = fk("tenants.id")
    url: str = string()
    description: str = string(default="")
    kinds: list[str] = words(comment="Kinds of delivery that it receives; empty is all but audit_recorded")
    agent_id: str | None = id_ref(null=True, comment="Receives only this agent's deliveries; null is every agent's")
    enabled: bool = boolean(default=True)
    disabled_reason: str | None = string(null=True)
    failures: int = count(comment="Consecutive failed attempts")
    failing_since: datetime | None = time(null=True, comment="Time of the first of them")
    rests_until: datetime | None = time(null=True, comment="No attempt is made before this time")
    secret: bytes = Field(sa_column=Column(LargeBinary, nullable=False, comment="Encrypted like the values of secrets"))
    key_id: str = string(comment="Id of the master key that encrypts it")
    previous_secret: bytes | None = Field(
        default=None, sa_column=Column(LargeBinary, nullable=True, comment="Also signs, until it expires")
    )
    previous_expires_at: datetime | None = time(null=True)
    created_at: datetime = time(now=True)
    updated_at: datetime = time(now=True)


class PushConfig(Table, table=True):
    """A URL that a client named for the changes of one run: a push notification configuration of the A2A protocol."""

    __tablename__ = "push_configs"

    run_id: str = fk("runs.id", primary=True)
    name: str = string(primary=True, comment="Its id for the client: chosen by it, or made for it")
    tenant_id: str = id_ref()
    url: str = string()
    secret: bytes | None = Field(
        default=None,
        sa_column=Column(
            LargeBinary, nullable=True, comment="The client's token and credentials, encrypted like values of secrets"
        ),
    )
    key_id: str | None = string(null=True, comment="Id of the master key that encrypts them; null without any")
    created_at: datetime = time(now=True)
