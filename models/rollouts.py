"""Rollouts: versions of agents that take over conversations in steps."""

from datetime import datetime
from typing import Any

from sqlalchemy import Index, text

from nova_workers.base.vocabulary import OPEN_ROLLOUTS, RolloutStatus, sql_list

from .base import Table
from .columns import count, fk, id_ref, json, one_of, pk, string, time


class Rollout(Table, table=True):
    """A candidate version of an agent, which executes a growing share of the runs beside the current version."""

    __tablename__ = "rollouts"
    __table_args__ = (
        one_of("status", RolloutStatus),
        # At most one of an agent; each claim looks it up.
        Index(
            "uq_rollouts__open",
            "tenant_id",
            "agent_id",
            unique=True,
            postgresql_where=text(f"status IN {sql_list(OPEN_ROLLOUTS)}"),
        ),
        Index(None, "tenant_id", "agent_id", "id"),
    )

    id: str = pk()
    tenant_id: str = fk("tenants.id")
    agent_id: str = id_ref()
    version: int = count(default=None, comment="The candidate")
    baseline_version: int = count(default=None, comment="The version that is current meanwhile")
    status: str = string(default="running")
    steps: list[dict[str, Any]] = json(comment="contracts.http.rollouts.RolloutStep")
    step: int = count(comment="Index of the step that it is at; a change of it is guarded by it")
    share: int = count(comment="Of this step, in hundredths of a percent of the threads")
    step_ends_at: datetime | None = time(null=True, comment="Null: it stays until a person advances it")
    min_runs: int = count(comment="Ended runs of the candidate before a step may end by itself")
    guardrails: list[dict[str, Any]] = json(comment="contracts.http.rollouts.RolloutGuardrail")
    looks: dict[str, Any] = json(default="'{}'", comment="Of each guardrail, the last look that was judged")
    judged: dict[str, Any] = json(
        default="'{}'", comment="contracts.http.rollouts.RolloutLook, by measure: what these looks found"
    )
    shadow: dict[str, Any] | None = json(null=True, comment="contracts.http.rollouts.ShadowView")
    run_metadata: dict[str, Any] = json(default="'{}'", comment="Only runs with this metadata")
    key_id: str | None = id_ref(null=True, comment="Only threads that this API key began")
    breach: dict[str, Any] | None = json(
        null=True, comment="contracts.http.rollouts.RolloutBreach: why it stopped itself"
    )
    reason: str | None = string(null=True, comment="Why it ended")
    created_at: datetime = time(now=True)
    updated_at: datetime = time(now=True)
    promoted_at: datetime | None = time(null=True)
    ended_at: datetime | None = time(null=True)
