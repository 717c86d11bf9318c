"""What people and programs say of runs: scores, labels and comments."""

from datetime import datetime

from sqlalchemy import Index

from nova_workers.base.vocabulary import FeedbackSource

from .base import Table
from .columns import count, fk, id_ref, number, one_of, pk, string, time


class Feedback(Table, table=True):
    """A score, a label or a comment on a run or on one step of it: one of each name by each author."""

    __tablename__ = "feedback"
    __table_args__ = (
        one_of("source", FeedbackSource),
        Index(
            "uq_feedback__of_author",
            *("run_id", "name", "key_id", "author", "step"),
            unique=True,
            postgresql_nulls_not_distinct=True,
        ),
        Index(None, "tenant_id", "id"),
        Index(None, "tenant_id", "agent_id", "id"),
    )

    id: str = pk()
    tenant_id: str = id_ref()
    run_id: str = fk("runs.id")
    step: int | None = count(null=True, default=None, comment="Index of the step that it is about; null is the run")
    thread_id: str = id_ref()
    agent_id: str = id_ref()
    agent_version: int | None = count(null=True, default=None, comment="That the run used")
    name: str = string(comment="What was judged, such as rating or helpfulness")
    score: float | None = number(null=True, comment="From -1 to 1")
    label: str | None = string(null=True)
    comment: str | None = string(null=True)
    source: str = string(comment="person, user or code")
    author: str = string(default="", comment="The person or program, as the client names it; empty is the key itself")
    key_id: str = id_ref(comment="The key of the request, or the person of its session")
    created_at: datetime = time(now=True)
    updated_at: datetime = time(now=True)
