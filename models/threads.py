"""Conversations: a pointer to the head of a tree of turns, and the history of its moves."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Column, Identity, Index, text
from sqlmodel import Field

from nova_workers.base.vocabulary import HeadMove, RunSource

from .base import Table
from .columns import big, boolean, count, fk, id_ref, json, one_of, pk, string, time


class Thread(Table, table=True):
    """One conversation owned by one agent."""

    __tablename__ = "threads"
    __table_args__ = (
        # Lists leave ephemeral threads out, of which there may be many times as many as of others.
        Index("ix_threads__listed", "tenant_id", "ephemeral", "id", postgresql_where=text("deleted_at IS NULL")),
        Index(
            "ix_threads__listed_of_agent",
            "tenant_id",
            "agent_id",
            "ephemeral",
            "id",
            postgresql_where=text("deleted_at IS NULL"),
        ),
        # By what began them, and by the key that did. A list without these filters reads none of both.
        Index(
            "ix_threads__listed_of_origin",
            "tenant_id",
            "origin",
            "id",
            postgresql_where=text("deleted_at IS NULL AND NOT ephemeral"),
        ),
        Index(
            "ix_threads__listed_of_creator",
            "tenant_id",
            "created_by",
            "id",
            postgresql_where=text("created_by IS NOT NULL AND deleted_at IS NULL AND NOT ephemeral"),
        ),
        # Few of many.
        Index("ix_threads__pinned", "tenant_id", "id", postgresql_where=text("pinned AND deleted_at IS NULL")),
        Index("ix_threads__archived", "tenant_id", "id", postgresql_where=text("archived AND deleted_at IS NULL")),
        Index(
            "uq_threads__tenant_id_label",
            "tenant_id",
            "label",
            unique=True,
            postgresql_where=text("label IS NOT NULL AND deleted_at IS NULL"),
        ),
        Index(
            "uq_threads__tenant_id_task_id",
            "tenant_id",
            "task_id",
            unique=True,
            postgresql_where=text("task_id IS NOT NULL AND deleted_at IS NULL"),
        ),
        # Retention: deleted threads, threads to purge, and turns that forks continue from.
        Index(
            "ix_threads__deleted", "deleted_at", postgresql_where=text("deleted_at IS NOT NULL AND purge_at IS NULL")
        ),
        Index(
            "ix_threads__forks",
            "tenant_id",
            "forked_from_thread_id",
            "id",
            postgresql_where=text("forked_from_thread_id IS NOT NULL AND deleted_at IS NULL"),
        ),
        # By creation: an index with `updated_at` would have to follow each update of every thread.
        Index("ix_threads__ephemeral", "created_at", postgresql_where=text("ephemeral AND purge_at IS NULL")),
        Index("ix_threads__purge", "purge_at", postgresql_where=text("purge_at IS NOT NULL")),
        Index(
            "ix_threads__forked_from", "forked_from_turn_id", postgresql_where=text("forked_from_turn_id IS NOT NULL")
        ),
        one_of("origin", RunSource),
        # Several updates per run: space for heap-only tuples spares the indexes.
        {"postgresql_with": {"fillfactor": "70"}},
    )

    id: str = pk()
    tenant_id: str = fk("tenants.id")
    agent_id: str = id_ref()
    label: str | None = string(null=True, comment="A name for the thread, unique until the thread is deleted")
    title: str | None = string(null=True)
    head_turn_id: str | None = id_ref(null=True, comment="Newest finished turn; null before the first")
    active_run_id: str | None = id_ref(null=True, comment="The run that holds the thread, if any")
    fence: int = big(comment="Raised at every claim; a write with an older fence is refused")
    next_seq: int = big(default=1, comment="Queue position of the next run")
    turn_count: int = count(comment="Finished normal turns")
    session_id: str | None = string(null=True, comment="The SDK session of engines that keep their own")
    task_id: int | None = count(null=True, default=None, comment="The task that the thread is dedicated to")
    forked_from_thread_id: str | None = id_ref(null=True)
    forked_from_turn_id: str | None = id_ref(null=True)
    orchestration_id: str | None = id_ref(null=True, comment="The orchestration that one of its agents has it for")
    rollout_id: str | None = id_ref(null=True, comment="The latest rollout whose candidate it used")
    ephemeral: bool = boolean(comment="In no list or search, without a title, purged a day after its last use")
    origin: str = string(default="api", comment="What began it")
    created_by: str | None = id_ref(null=True, comment="The API key whose request began it; null for other origins")
    pinned: bool = boolean(comment="Lists for people have it first")
    archived: bool = boolean(comment="Put away: lists for people leave it out")
    imported_at: datetime | None = time(null=True, comment="When its first turns were imported from elsewhere")
    meta: dict[str, Any] = json(default="'{}'")
    created_at: datetime = time(now=True)
    updated_at: datetime = time(now=True)
    deleted_at: datetime | None = time(null=True)
    purge_at: datetime | None = time(
        null=True, comment="When the rows of a deleted thread are purged; infinity while forks continue from its turns"
    )
    trimmed_at: datetime | None = time(null=True, comment="When all but its latest turn was last deleted, by policy")


class ThreadState(Table, table=True):
    """The state document of a thread, apart from its row: claims and messages lock and copy that."""

    __tablename__ = "thread_states"
    # Updated in place: space for heap-only tuples.
    __table_args__ = ({"postgresql_with": {"fillfactor": "70"}},)

    thread_id: str = fk("threads.id", primary=True)
    tenant_id: str = id_ref()
    state: dict[str, Any] = json()
    version: int = big(default=1, comment="Grows with each change; a write with another one is refused")
    updated_at: datetime = time(now=True)


class ThreadHead(Table, table=True):
    """One move of a thread's head pointer."""

    __tablename__ = "thread_heads"
    __table_args__ = (Index(None, "thread_id", "id"), one_of("move", HeadMove))

    id: int | None = Field(default=None, sa_column=Column(BigInteger, Identity(always=True), primary_key=True))
    tenant_id: str = id_ref()
    thread_id: str = fk("threads.id")
    turn_id: str | None = id_ref(null=True)
    run_id: str | None = id_ref(null=True)
    move: str = string(default="turn")
    changed_at: datetime = time(now=True)
