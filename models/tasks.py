"""Structured work: tasks with steps, owned by agents."""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKeyConstraint, Index, text

from nova_workers.base.vocabulary import ResourceKind, TaskStatus

from .base import Table
from .columns import boolean, count, fk, id_ref, json, one_of, pk, string, time

_TASK = (["tenant_id", "task_id"], ["tasks.tenant_id", "tasks.id"])


class Task(Table, table=True):
    """One task. Its id is a number within its tenant, never used again."""

    __tablename__ = "tasks"
    __table_args__ = (
        one_of("status", TaskStatus),
        CheckConstraint("(parent_task_id IS NULL) = (parent_step_id IS NULL)", name="parent_is_whole"),
        Index(None, "tenant_id", "status", "id"),
        Index(None, "tenant_id", "owner_agent_id", "id"),
        # The scheduler: what is due, tenant by tenant, and what is in flight.
        Index(
            "ix_tasks__work",
            "tenant_id",
            "work_at",
            postgresql_where=text("work_at IS NOT NULL AND working_run_id IS NULL"),
        ),
        Index(
            "ix_tasks__parked",
            "tenant_id",
            "id",
            postgresql_where=text("status = 'active' AND parked_reason IS NOT NULL"),
        ),
        Index("ix_tasks__working", "working_run_id", postgresql_where=text("working_run_id IS NOT NULL")),
        Index(
            "uq_tasks__parent_step_id",
            "parent_step_id",
            unique=True,
            postgresql_where=text("parent_step_id IS NOT NULL AND status <> 'canceled'"),
        ),
        Index(None, "tenant_id", "parent_task_id", "id", postgresql_where=text("parent_task_id IS NOT NULL")),
    )

    tenant_id: str = fk("tenants.id", primary=True)
    id: int = count(default=None, primary=True)
    title: str = string()
    description: str = string(default="")
    owner_agent_id: str = id_ref()
    created_by: str = string(comment="person, or the agent's id")
    status: str = string(default="draft")
    revision: int = count(comment="Counts its changes")
    thread_id: str | None = id_ref(null=True, comment="Its dedicated thread, made when it is activated")
    parent_task_id: int | None = count(null=True, default=None)
    parent_step_id: str | None = id_ref(null=True)
    outcome: str | None = string(null=True, comment="Its result, or why it was canceled")
    work_at: datetime | None = time(null=True, comment="When it is worked on next; null if it is not")
    working_run_id: str | None = id_ref(null=True, comment="The invocation that is in flight")
    worked_revision: int | None = count(
        null=True, default=None, comment="Its revision when the latest invocation began"
    )
    idle_invocations: int = count(comment="Consecutive invocations that changed nothing")
    parked_reason: str | None = string(null=True, comment="Why the scheduler does not work on it")
    created_at: datetime = time(now=True)
    updated_at: datetime = time(now=True)
    ended_at: datetime | None = time(null=True)


class TaskStep(Table, table=True):
    """One step of a task's plan."""

    __tablename__ = "task_steps"
    __table_args__ = (
        ForeignKeyConstraint(*_TASK, ondelete="CASCADE"),
        CheckConstraint("char_length(title) BETWEEN 1 AND 60", name="title"),
        Index(None, "tenant_id", "task_id", "position"),
    )

    id: str = pk()
    tenant_id: str = id_ref()
    task_id: int = count(default=None)
    position: int = count()
    title: str = string()
    details: str = string(default="")
    done: bool = boolean()
    subtask_id: int | None = count(null=True, default=None, comment="The task that does this step")


class TaskResource(Table, table=True):
    """A URL or a file that a task works with."""

    __tablename__ = "task_resources"
    __table_args__ = (
        ForeignKeyConstraint(*_TASK, ondelete="CASCADE"),
        one_of("kind", ResourceKind),
        Index("uq_task_resources__task_id_value", "tenant_id", "task_id", "value", unique=True),
    )

    id: str = pk()
    tenant_id: str = id_ref()
    task_id: int = count(default=None)
    kind: str = string()
    value: str = string(comment="The URL, or the path")
    title: str | None = string(null=True)
    created_at: datetime = time(now=True)


class TaskChange(Table, table=True):
    """One change of a task. Never updated."""

    __tablename__ = "task_changes"
    __table_args__ = (
        ForeignKeyConstraint(*_TASK, ondelete="CASCADE"),
        Index("uq_task_changes__task_id_revision", "tenant_id", "task_id", "revision", unique=True),
    )

    id: str = pk()
    tenant_id: str = id_ref()
    task_id: int = count(default=None)
    revision: int = count(default=None, comment="The task's revision after the change")
    actor: str = string(comment="person, or the agent's id")
    run_id: str | None = id_ref(null=True)
    kind: str = string()
    details: dict[str, Any] = json(default="'{}'")
    created_at: datetime = time(now=True)
