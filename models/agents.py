"""Agents and the versions of their configuration."""

from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import (
    Column,
    Computed,
    Connection,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    Numeric,
    Text,
    event,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlmodel import Field

from .base import Table, metadata
from .columns import count, id_ref, json, string, time

AGENT_NEEDS = r"""
CREATE OR REPLACE FUNCTION agent_needs(spec jsonb) RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
SELECT array_agg(n.need ORDER BY n.need COLLATE "C")
  FROM (SELECT c.name AS need
          FROM jsonb_object_keys(CASE WHEN jsonb_typeof(spec -> 'capabilities') = 'object'
                                      THEN spec -> 'capabilities' ELSE '{}' END) AS c (name)
         WHERE starts_with(c.name, 'project:')
        UNION
        SELECT 'code:' || split_part(spec #>> '{engine_config,agent}', ':', 1)
         WHERE spec ->> 'engine' = 'code' AND spec #>> '{engine_config,agent}' IS NOT NULL) n
$$
"""
"""The code of users that the runs of an agent need, as `nova_workers.contracts.installs.Installation` has it."""

AGENT_CODE = r"""
CREATE OR REPLACE FUNCTION agent_code(spec jsonb) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
SELECT CASE WHEN spec ->> 'engine' = 'code'
            THEN 'code:' || split_part(spec #>> '{engine_config,agent}', ':', 1) END
$$
"""
"""The need of an agent in Python that is its own code."""


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
    needs: list[str] | None = Field(
        default=None,
        sa_column=Column(
            ARRAY(Text),
            Computed("agent_needs(spec)", persisted=True),
            comment="Generated from spec: the projects and code that its runs need; null is none",
        ),
    )
    code: str | None = Field(
        default=None,
        sa_column=Column(
            Text,
            Computed("agent_code(spec)", persisted=True),
            comment="Generated from spec: of an agent in Python, its code",
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


@event.listens_for(metadata, "before_create")
def _make_function(_: MetaData, connection: Connection, **__: Any) -> None:
    """Do for tables made from the metadata what the migrations did."""
    for statement in (AGENT_NEEDS, AGENT_CODE):
        connection.exec_driver_sql(statement)
