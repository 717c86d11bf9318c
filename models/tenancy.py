"""Tenants, their API keys, and the leases of their clients."""

from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import CheckConstraint, Column, Index, LargeBinary
from sqlmodel import Field

from .base import Table
from .columns import big, count, fk, id_ref, json, money, pk, string, time, words


class Tenant(Table, table=True):
    """An isolated customer of the fleet. Every other row belongs to one."""

    __tablename__ = "tenants"
    # One tenant with a zone that Postgres does not know would stop the work on every tenant's tasks.
    __table_args__ = (
        CheckConstraint("timezone(timezone, timestamp '2000-01-01') IS NOT NULL", name="timezone_is_known"),
    )

    id: str = pk()
    name: str = string()
    timezone: str = string(default="UTC", comment="IANA name; the zone of its days and hours")
    work_from: int = count(default=6, comment="First hour of the day at which tasks are worked on")
    work_until: int = count(default=22, comment="The hour at which that ends")
    work_every_s: int = count(default=3600, comment="How often a task is worked on")
    weight: int = count(default=1, comment="Its share of a busy fleet, relative to other tenants")
    max_running: int | None = count(null=True, default=None, comment="Most runs at once")
    max_cost_usd_per_day: Decimal | None = money()
    ceilings: dict[str, Any] | None = json(
        null=True, comment="What its agents may be given at most, see contracts.agents; null permits everything"
    )
    next_task_id: int = count(default=1, comment="The number of the next task")
    created_at: datetime = time(now=True)
    ending_at: datetime | None = time(null=True, comment="When an operator ended it; from then on its rows are deleted")


class ApiKey(Table, table=True):
    """A bearer key. Only its SHA-256 is kept: 256 random bits need no slow hash."""

    __tablename__ = "api_keys"
    __table_args__ = (Index(None, "hash", unique=True), Index(None, "tenant_id", "id"))

    id: str = pk()
    tenant_id: str = fk("tenants.id")
    name: str = string()
    prefix: str = string(comment="First characters of the key, to recognise it by")
    hash: bytes = Field(sa_column=Column(LargeBinary, nullable=False, comment="SHA-256 of the whole key"))
    scopes: list[str] = words(comment="See contracts.http.scopes.Scope")
    role: str | None = string(null=True, comment="The role that it was made with; its scopes are those of that time")
    networks: list[str] = words(comment="CIDRs of the clients that may use it; empty: all")
    replaced_by: str | None = id_ref(null=True, comment="The key that it was rotated to")
    person_id: str | None = id_ref(null=True, comment="The person whose session it is of")
    created_at: datetime = time(now=True)
    expires_at: datetime | None = time(null=True)
    revoked_at: datetime | None = time(null=True)
    last_used_at: datetime | None = time(null=True, comment="Written at most once a minute")
    last_used_address: str | None = string(null=True, comment="Of the client that used it then")


class SignIn(Table, table=True):
    """A session of a person who signed in with a key; without its row it has ended."""

    __tablename__ = "sign_ins"

    tenant_id: str = fk("tenants.id", primary=True)
    id: str = pk()
    key_id: str = id_ref(comment="The key that the person signed in with")
    idle_s: int = count(default=None, comment="It ends after this long without a request")
    seen_at: datetime = time(now=True, comment="Of its last request, exact to a minute")
    began_at: datetime = time(now=True)


class Person(Table, table=True):
    """A person who came by single sign-on, in one tenant."""

    __tablename__ = "people"
    __table_args__ = (Index(None, "tenant_id", "issuer", "subject", unique=True),)

    id: str = pk()
    tenant_id: str = fk("tenants.id")
    issuer: str = string(comment="The provider that names the person")
    subject: str = string(comment="The provider's id of the person")
    email: str | None = string(null=True, comment="As the last token has it")
    name: str | None = string(null=True)
    created_at: datetime = time(now=True)
    signed_in_at: datetime = time()


class ChannelPairing(Table, table=True):
    """A person who asks to write to a channel, or may."""

    __tablename__ = "channel_pairings"
    __table_args__ = (Index(None, "tenant_id", "channel", "sender", unique=True), Index(None, "tenant_id", "id"))

    id: str = pk()
    tenant_id: str = fk("tenants.id")
    channel: str = string()
    sender: str = string(comment="The person's id in the channel, which the channel has verified")
    name: str = string(comment="What the person calls itself there")
    code_hash: bytes = Field(
        sa_column=Column(LargeBinary, nullable=False, comment="SHA-256 of the code that confirms it")
    )
    code_expires_at: datetime = time()
    asked_at: datetime = time(now=True)
    paired_at: datetime | None = time(null=True, comment="When it was confirmed; null while it is only asked for")


class Lease(Table, table=True):
    """A time-limited right of one process of a client, and what the next holder continues from."""

    __tablename__ = "leases"

    tenant_id: str = fk("tenants.id", primary=True)
    name: str = string(primary=True)
    holder: str = string(comment="Describes the process, for people")
    fence: int = big(default=None, comment="Grows with each acquisition")
    token_hash: bytes | None = Field(
        default=None,
        sa_column=Column(LargeBinary, nullable=True, comment="SHA-256 of the token that proves who holds it"),
    )
    state: dict[str, Any] = json(default="'{}'")
    expires_at: datetime = time()
    error: str | None = string(null=True, comment="Why the holder pauses; null: it works")
    failing_since: datetime | None = time(null=True, comment="When it began to fail")
    next_try_at: datetime | None = time(null=True, comment="When the pause ends")
    retry_requested_at: datetime | None = time(null=True, comment="When a person asked for a try at once")
