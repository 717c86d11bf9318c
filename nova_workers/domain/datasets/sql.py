"""Datasets and their examples: a version is the rows that were added by then, and not removed yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nova_workers.base.ids import new_id
from nova_workers.contracts.content import ContentBlock, JsonObject
from nova_workers.contracts.http.datasets import (
    DatasetCreate,
    DatasetPatch,
    DatasetView,
    ExampleView,
    RecordedCall,
    Redaction,
)
from nova_workers.contracts.http.wire import PastMessage
from nova_workers.ledger.database import Connection, Row
from nova_workers.ledger.stored import read_stored, to_store

_VIEW = """
d.id, d.name, d.description, d.redact, d.version, d.created_at, d.updated_at,
(SELECT count(*)::int FROM dataset_examples e WHERE e.dataset_id = d.id AND e.removed_version IS NULL) AS examples
"""

# The limit is approximate: two concurrent inserts may both take the last free place.
_CREATE = f"""
WITH made AS (
    INSERT INTO datasets (id, tenant_id, name, description, redact)
    SELECT :dataset_id, :tenant_id, :name, :description, :redact
     WHERE (SELECT count(*) FROM datasets WHERE tenant_id = :tenant_id) < :at_most
        ON CONFLICT (tenant_id, name) DO NOTHING
    RETURNING *
)
SELECT {_VIEW} FROM made d
"""

_FIND = f"SELECT {_VIEW} FROM datasets d WHERE d.tenant_id = :tenant_id AND d.name = :name"

_LOCK = f"{_FIND} FOR UPDATE OF d"

_LIST = f"""
SELECT {_VIEW} FROM datasets d
 WHERE d.tenant_id = :tenant_id AND (:after::text IS NULL OR d.name > :after)
 ORDER BY d.name
 LIMIT :limit
"""

_PATCH = f"""
WITH changed AS (
    UPDATE datasets
       SET description = COALESCE(:description::text, description), redact = COALESCE(:redact::jsonb, redact),
           updated_at = now()
     WHERE tenant_id = :tenant_id AND name = :name
    RETURNING *
)
SELECT {_VIEW} FROM changed d
"""

_DELETE = "DELETE FROM datasets WHERE tenant_id = :tenant_id AND name = :name RETURNING id"

_CURRENT = """
SELECT key, digest FROM dataset_examples
 WHERE tenant_id = :tenant_id AND dataset_id = :dataset_id AND removed_version IS NULL AND key = ANY(:keys::text[])
"""

_COUNTS = """
SELECT count(*) FILTER (WHERE removed_version IS NULL)::int AS current, count(*)::int AS kept
  FROM dataset_examples
 WHERE tenant_id = :tenant_id AND dataset_id = :dataset_id
"""

# With the dataset's row locked, so that each version is one change.
_RAISE = """
UPDATE datasets SET version = version + 1, updated_at = now()
 WHERE tenant_id = :tenant_id AND id = :dataset_id
RETURNING version
"""

_REMOVE = """
UPDATE dataset_examples SET removed_version = :version
 WHERE tenant_id = :tenant_id AND dataset_id = :dataset_id AND removed_version IS NULL AND key = ANY(:keys::text[])
RETURNING key
"""

_ADD = """
INSERT INTO dataset_examples (id, tenant_id, dataset_id, key, digest, added_version, split, tags, input, context, calls,
                              expected, rubric, source_thread_id, source_run_id)
SELECT x.id, :tenant_id, :dataset_id, x.key, x.digest, :version, x.split,
       ARRAY(SELECT jsonb_array_elements_text(x.tags)), x.input, x.context, x.calls, NULLIF(x.expected, 'null'),
       x.rubric, x.source_thread_id, x.source_run_id
  FROM jsonb_to_recordset(:examples) AS x(id text, key text, digest text, split text, tags jsonb, input jsonb,
                                          context jsonb, calls jsonb, expected jsonb, rubric text,
                                          source_thread_id text, source_run_id text)
"""

_COLUMNS = (
    "id, key, added_version, removed_version, input, context, calls, expected, rubric, tags, split, source_thread_id, "
    "source_run_id, created_at"
)

IN_VERSION = """
e.tenant_id = :tenant_id AND e.dataset_id = :dataset_id AND e.added_version <= :dataset_version
AND (e.removed_version IS NULL OR e.removed_version > :dataset_version)
AND (:split::text IS NULL OR e.split = :split) AND e.tags @> :tags::text[]
"""
"""That the example ``e`` is in a version of a dataset, with a split and tags if they are given."""

_EXAMPLES = f"""
SELECT {_COLUMNS} FROM dataset_examples e
 WHERE {IN_VERSION} AND e.id > :after
 ORDER BY e.id
 LIMIT :limit
"""

# Of runs that began and are not of a deleted thread: what an example takes from them.
_SOURCES = """
SELECT r.id AS run_id, r.thread_id, r.content, r.result_text AS answer, t.parent_turn_id,
       (SELECT jsonb_agg(jsonb_build_object('tool', c.tool_name, 'arguments', c.params, 'status', c.status,
                                            'result', c.result, 'error', c.error)
                         ORDER BY c.step, c.sequence)
          FROM tool_calls c WHERE c.turn_id = t.id) AS calls
  FROM runs r
  JOIN threads h ON h.id = r.thread_id AND h.deleted_at IS NULL
  JOIN turns t ON t.run_id = r.id
 WHERE r.tenant_id = :tenant_id AND r.id = ANY(:run_ids::text[])
 ORDER BY r.id
"""

_FORGET = "DELETE FROM dataset_examples WHERE tenant_id = :tenant_id AND source_thread_id = :thread_id"


@dataclass(frozen=True, slots=True)
class NewExample:
    """An example as it is stored.

    Attributes:
        digest: Of all that it says.
    """

    key: str
    digest: str
    split: str | None
    tags: Sequence[str]
    input: Sequence[ContentBlock]
    context: Sequence[JsonObject]
    calls: Sequence[JsonObject]
    expected: Any
    rubric: str | None
    source_thread_id: str | None = None
    source_run_id: str | None = None


@dataclass(frozen=True, slots=True)
class SourceRun:
    """A run that an example is taken from.

    Attributes:
        parent_turn_id: The turn before its own; None if it is the first.
        calls: Its tool calls with their results, in their order.
    """

    run_id: str
    thread_id: str
    content: Sequence[ContentBlock]
    answer: str | None
    parent_turn_id: str | None
    calls: Sequence[JsonObject]


async def create_dataset(
    connection: Connection, tenant_id: str, dataset: DatasetCreate, *, at_most: int
) -> DatasetView | None:
    """Add a dataset; None if there is one of its name, or the tenant has `at_most`."""
    row = await connection.fetchrow(
        _CREATE,
        dataset_id=new_id("dst"),
        tenant_id=tenant_id,
        name=dataset.name,
        description=dataset.description,
        redact=to_store(Redaction, dataset.redact),
        at_most=at_most,
    )
    return _view(row)


async def find_dataset(connection: Connection, tenant_id: str, name: str, *, lock: bool = False) -> DatasetView | None:
    """Return a dataset, locked until the transaction ends if its examples are to change."""
    return _view(await connection.fetchrow(_LOCK if lock else _FIND, tenant_id=tenant_id, name=name))


async def list_datasets(connection: Connection, tenant_id: str, *, after: str | None, limit: int) -> list[DatasetView]:
    """Return datasets by name."""
    rows = await connection.fetch(_LIST, tenant_id=tenant_id, after=after, limit=limit)
    return [_seen(row) for row in rows]


async def patch_dataset(connection: Connection, tenant_id: str, name: str, change: DatasetPatch) -> DatasetView | None:
    """Change a dataset, and return it."""
    redact = None if change.redact is None else to_store(Redaction, change.redact)
    row = await connection.fetchrow(
        _PATCH, tenant_id=tenant_id, name=name, description=change.description, redact=redact
    )
    return _view(row)


async def delete_dataset(connection: Connection, tenant_id: str, name: str) -> bool:
    """Delete a dataset with all versions of its examples. Return whether it was there."""
    return await connection.fetchval(_DELETE, tenant_id=tenant_id, name=name) is not None


async def current_digests(
    connection: Connection, tenant_id: str, dataset_id: str, keys: Sequence[str]
) -> dict[str, str]:
    """Return the digests of those examples of the present version that have one of these keys, by key."""
    rows = await connection.fetch(_CURRENT, tenant_id=tenant_id, dataset_id=dataset_id, keys=list(keys))
    return {row["key"]: row["digest"] for row in rows}


async def count_examples(connection: Connection, tenant_id: str, dataset_id: str) -> tuple[int, int]:
    """Return how many examples the present version has, and how many all versions have."""
    row = await connection.fetchrow(_COUNTS, tenant_id=tenant_id, dataset_id=dataset_id)
    return (0, 0) if row is None else (row["current"], row["kept"])


async def raise_version(connection: Connection, tenant_id: str, dataset_id: str) -> int:
    """Begin a new version of a dataset whose row this transaction has locked, and return it."""
    return await connection.fetchval(_RAISE, tenant_id=tenant_id, dataset_id=dataset_id)


async def remove_examples(
    connection: Connection, tenant_id: str, dataset_id: str, version: int, keys: Sequence[str]
) -> int:
    """Let a version, and those after it, be without examples. Return how many there were."""
    rows = await connection.fetch(_REMOVE, tenant_id=tenant_id, dataset_id=dataset_id, version=version, keys=list(keys))
    return len(rows)


async def add_examples(
    connection: Connection, tenant_id: str, dataset_id: str, version: int, examples: Sequence[NewExample]
) -> None:
    """Add examples to a version, in one statement."""
    rows: list[JsonObject] = [
        {
            "id": new_id("exm"),
            "key": one.key,
            "digest": one.digest,
            "split": one.split,
            "tags": list(one.tags),
            "input": list(one.input),
            "context": list(one.context),
            "calls": list(one.calls),
            "expected": one.expected,
            "rubric": one.rubric,
            "source_thread_id": one.source_thread_id,
            "source_run_id": one.source_run_id,
        }
        for one in examples
    ]
    await connection.execute(_ADD, tenant_id=tenant_id, dataset_id=dataset_id, version=version, examples=rows)


async def list_examples(
    connection: Connection,
    tenant_id: str,
    dataset_id: str,
    version: int,
    *,
    split: str | None = None,
    tags: Sequence[str] = (),
    after: str | None = None,
    limit: int,
) -> list[ExampleView]:
    """Return the examples of a version in the order in which they were added.

    Args:
        split: Only those of this split.
        tags: Only those with each of these.
        after: Only those after the one with this id.
        limit: Most that are returned.
    """
    rows = await connection.fetch(
        _EXAMPLES,
        tenant_id=tenant_id,
        dataset_id=dataset_id,
        dataset_version=version,
        split=split,
        tags=list(tags),
        after=after or "",
        limit=limit,
    )
    return [_example(row) for row in rows]


async def read_sources(connection: Connection, tenant_id: str, run_ids: Sequence[str]) -> list[SourceRun]:
    """Return those of these runs that examples can be taken from, oldest first."""
    rows = await connection.fetch(_SOURCES, tenant_id=tenant_id, run_ids=list(run_ids))
    return [
        SourceRun(
            run_id=row["run_id"],
            thread_id=row["thread_id"],
            content=row["content"],
            answer=row["answer"],
            parent_turn_id=row["parent_turn_id"],
            calls=row["calls"] or (),
        )
        for row in rows
    ]


async def forget_examples(connection: Connection, tenant_id: str, thread_id: str) -> None:
    """Delete all examples that were taken from a thread, of every version."""
    await connection.execute(_FORGET, tenant_id=tenant_id, thread_id=thread_id)


def _view(row: Row | None) -> DatasetView | None:
    return None if row is None else _seen(row)


def _seen(row: Row) -> DatasetView:
    redact = read_stored(Redaction.model_validate, row["redact"])
    return DatasetView.model_validate({**row, "redact": redact})


def _example(row: Row) -> ExampleView:
    parts = {
        "context": [read_stored(PastMessage.model_validate, message) for message in row["context"]],
        "calls": [read_stored(RecordedCall.model_validate, call) for call in row["calls"]],
    }
    return ExampleView.model_validate({**row, **parts})
