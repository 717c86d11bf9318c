"""Triggers, and the outcome of each of their occurrences."""

from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import Index, text

from nova_workers.base.vocabulary import CatchUp, FiringOutcome, Overlap, TriggerAction, TriggerKind

from .base import Table
from .columns import boolean, count, fk, id_ref, json, money, one_of, pk, string, time


class Trigger(Table, table=True):
    """A schedule by which an agent is started with a prompt."""

    __tablename__ = "triggers"
    __table_args__ = (
        one_of("kind", TriggerKind),
        one_of("action", TriggerAction),
        one_of("overlap", Overlap),
        one_of("catchup", CatchUp),
        Index(None, "tenant_id", "id", postgresql_where=text("deleted_at IS NULL")),
        Index(None, "tenant_id", "agent_id", "id", postgresql_where=text("deleted_at IS NULL")),
        # The tick: only triggers that will fire, in the order in which they are due.
        Index("ix_triggers__due", "next_fire_at", postgresql_where=text("next_fire_at IS NOT NULL")),
        Index(
            "ix_triggers__paused",
            "tenant_id",
            "id",
            postgresql_where=text("paused_reason IS NOT NULL AND deleted_at IS NULL"),
        ),
        Index(
            "ix_triggers__thread_id",
            "thread_id",
            postgresql_where=text("thread_id IS NOT NULL AND deleted_at IS NULL"),
        ),
        {"postgresql_with": {"fillfactor": "70"}},
    )

    id: str = pk()
    tenant_id: str = fk("tenants.id")
    agent_id: str = id_ref()
    kind: str = string()
    schedule: str = string(comment="A cron line, a time in RFC 3339, or a period in seconds")
    timezone: str = string(default="UTC", comment="IANA name; the zone of a cron line")
    prompt: str = string()
    action: str = string(default="run", comment="What it starts; the prompt is the message of a run, or the task")
    title: str | None = string(null=True)
    enabled: bool = boolean(default=True)
    thread_id: str | None = id_ref(null=True, comment="One fixed thread; null makes one for each firing")
    starts_at: datetime | None = time(null=True)
    ends_at: datetime | None = time(null=True)
    created_by: str = string(comment="person, or the agent's id")
    created_at: datetime = time(now=True)
    updated_at: datetime = time(now=True)
    deleted_at: datetime | None = time(null=True)
    jitter_s: int = count(comment="Each occurrence fires up to this many seconds later, at random")
    overlap: str = string(default="skip")
    catchup_s: int = count(default=3600, comment="How late an occurrence may fire, in seconds; later it is skipped")
    catchup: str = string(default="once")
    max_runs_per_day: int | None = count(null=True, default=None)
    max_cost_usd_per_day: Decimal | None = money()
    pause_after_failures: int = count(default=5, comment="Consecutive failed runs after which it pauses; 0 is never")
    failures: int = count(comment="Consecutive failed runs")
    paused_reason: str | None = string(null=True, comment="Why it does not fire though it is enabled")
    gate: dict[str, Any] | None = json(null=True, comment="A condition that costs no model call")
    gate_seen: str | None = string(null=True, comment="What the gate read at the latest firing")
    next_slot_at: datetime | None = time(null=True, comment="The next occurrence by its schedule")
    next_fire_at: datetime | None = time(null=True, comment="The same with its jitter; null if it does not fire")


class TriggerFiring(Table, table=True):
    """The outcome of one occurrence of a trigger. Its unique index makes an occurrence fire once."""

    __tablename__ = "trigger_firings"
    __table_args__ = (
        one_of("outcome", FiringOutcome),
        Index("uq_trigger_firings__occurrence", "trigger_id", "scheduled_for", unique=True),
        Index(None, "fired_at"),
        # Occurrences that wait for the run of an earlier one, oldest first.
        Index("ix_trigger_firings__queued", "trigger_id", "scheduled_for", postgresql_where=text("outcome = 'queued'")),
        Index("ix_trigger_firings__run_id", "run_id", postgresql_where=text("run_id IS NOT NULL")),
    )

    id: str = pk()
    tenant_id: str = id_ref()
    trigger_id: str = fk("triggers.id")
    scheduled_for: datetime = time(comment="The planned time")
    fired_at: datetime = time(now=True)
    run_id: str | None = id_ref(null=True)
    outcome: str = string()
    skip_reason: str | None = string(null=True)
    detail: str | None = string(null=True, comment="The reason in words")
    manual: bool = boolean(comment="Fired on request, not by the schedule")
