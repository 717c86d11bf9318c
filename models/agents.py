"""Agents and the versions of their configuration."""

from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import Column, Computed, ForeignKeyConstraint, Index, Integer, Numeric, text
from sqlmodel import Field

from .base import Table
from .columns import count, id_ref, json, string, time


class Agent(Table, table=True):
    """An agent with the configuration of its newest version, copied here for one-row reads."""

    __tablename__ = "agents"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id"], ["tenants.id"], ondelete="CASCADE"),
        Index(
            "ix_agents__retention",
            "tenant_id",
            "id",
            postgresql_where=text("jsonb_typeof(spec -> 'retention') = 'object'"),
        ),
    )

    tenant_id: str = id_ref(primary=True)
    id: str = id_ref(primary=True, comment="Slug, unique within the tenant")
    version: int = count(default=1)
    spec: dict[str, Any] = json(comment="contracts.agents.AgentSpec")
    # Columns of their own: each claim reads them, and the configuration may be long.
    max_running: int | None = Field(
        default=None,
        sa_column=Column(
            Integer, Computed("(spec ->> 'max_running')::integer", persisted=True), comment="Generated from spec"
        ),
    )
    max_cost_usd_per_day: Decimal | None = Field(
        default=None,
        sa_column=Column(
            Numeric(18, 8),
            Computed("(spec ->> 'max_cost_usd_per_day')::numeric", persisted=True),
            comment="Generated from spec",
        ),
    )
    created_at: datetime = time(now=True)
    updated_at: datetime = time(now=True)
    deleted_at: datetime | None = time(null=True)
    renamed_to: str | None = id_ref(null=True, comment="This is a former id: of which agent")
    directory: str | None = id_ref(null=True, comment="Name of its directory, if not its id: it was renamed")


class AgentVersion(Table, table=True):
    """One version of an agent's configuration. Immutable; a run records the version that it used."""

    __tablename__ = "agent_versions"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "agent_id"], ["agents.tenant_id", "agents.id"], ondelete="CASCADE"),
    )

    tenant_id: str = id_ref(primary=True)
    agent_id: str = id_ref(primary=True)
    version: int = count(default=None, primary=True)
    spec: dict[str, Any] = json()
    created_by: str = string(default="person", comment="person, seed, or the id of an agent")
    renamed_from: str | None = id_ref(null=True, comment="The id before, of a version that a rename made")
    created_at: datetime = time(now=True)
