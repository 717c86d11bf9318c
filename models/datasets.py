"""Datasets: examples by which versions of agents are compared."""

from datetime import datetime
from typing import Any

from sqlalchemy import Index, text

from .base import Table
from .columns import count, fk, id_ref, json, pk, string, time, words


class Dataset(Table, table=True):
    """A named set of examples. Each change of them raises its version."""

    __tablename__ = "datasets"
    __table_args__ = (Index(None, "tenant_id", "name", unique=True),)

    id: str = pk()
    tenant_id: str = fk("tenants.id")
    name: str = string()
    description: str = string(default="")
    redact: dict[str, Any] = json(default="'{}'", comment="contracts.http.datasets.Redaction")
    version: int = count(comment="Raised by every change of the examples; 0 has none")
    created_at: datetime = time(now=True)
    updated_at: datetime = time(now=True)


class DatasetExample(Table, table=True):
    """An example of the versions from `added_version` to before `removed_version`. Else it never changes."""

    __tablename__ = "dataset_examples"
    __table_args__ = (
        Index(
            "uq_dataset_examples__current",
            "dataset_id",
            "key",
            unique=True,
            postgresql_where=text("removed_version IS NULL"),
        ),
        Index(None, "dataset_id", "id"),
        Index(
            "ix_dataset_examples__source",
            "source_thread_id",
            postgresql_where=text("source_thread_id IS NOT NULL"),
        ),
    )

    id: str = pk()
    tenant_id: str = id_ref()
    dataset_id: str = fk("datasets.id")
    key: str = string(comment="Its name; unique in each version")
    digest: str = string(comment="SHA-256 of all that it says, in hex: equal ones are not added again")
    added_version: int = count(default=None)
    removed_version: int | None = count(null=True, default=None, comment="The first version without it")
    split: str | None = string(null=True, comment="Such as train or test")
    tags: list[str] = words()
    input: list[dict[str, Any]] = json(comment="The user's message as content blocks")
    context: list[dict[str, Any]] = json(default="'[]'", comment="The messages before it, oldest first")
    calls: list[dict[str, Any]] = json(default="'[]'", comment="contracts.http.datasets.RecordedCall, in their order")
    expected: Any = json(null=True, comment="The expected answer: a text, or JSON")
    rubric: str | None = string(null=True, comment="What a good answer has, for a judge")
    source_thread_id: str | None = id_ref(null=True, comment="The thread that it was taken from, and is deleted with")
    source_run_id: str | None = id_ref(null=True)
    created_at: datetime = time(now=True)
