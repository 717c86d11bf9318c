"""Lists of runs that people saved: each under a name of its own, of a person."""

from __future__ import annotations

from nova_workers.base.ids import new_id
from nova_workers.contracts.http.run_lists import RunListQuery, RunListSave, RunListView
from nova_workers.ledger.database import Connection, Row
from nova_workers.ledger.stored import read_stored, to_store

_COLUMNS = "id, name, query, created_at"

# The limit is approximate: two concurrent inserts may both take the last free place.
_SAVE = f"""
INSERT INTO run_lists AS l (id, tenant_id, owner_id, name, query)
SELECT :list_id, :tenant_id, :owner_id, :name, :query
 WHERE (SELECT count(*) FROM run_lists o
         WHERE o.tenant_id = :tenant_id AND o.owner_id = :owner_id AND o.name <> :name) < :at_most
ON CONFLICT (tenant_id, owner_id, name) DO UPDATE SET query = EXCLUDED.query
RETURNING {_COLUMNS}
"""

_LIST = f"SELECT {_COLUMNS} FROM run_lists WHERE tenant_id = :tenant_id AND owner_id = :owner_id ORDER BY id"

_DELETE = "DELETE FROM run_lists WHERE tenant_id = :tenant_id AND owner_id = :owner_id AND id = :list_id RETURNING id"


async def save_run_list(
    connection: Connection, tenant_id: str, owner_id: str, saved: RunListSave, *, at_most: int
) -> RunListView | None:
    """Save a list of a person, in place of one of its name; None if there are `at_most` others."""
    row = await connection.fetchrow(
        _SAVE,
        list_id=new_id("rls"),
        tenant_id=tenant_id,
        owner_id=owner_id,
        name=saved.name,
        query=to_store(RunListQuery, saved.query),
        at_most=at_most,
    )
    return None if row is None else _view(row)


async def run_lists_of(connection: Connection, tenant_id: str, owner_id: str) -> list[RunListView]:
    """Return a person's lists, in the order in which they were saved first."""
    return [_view(row) for row in await connection.fetch(_LIST, tenant_id=tenant_id, owner_id=owner_id)]


async def delete_run_list(connection: Connection, tenant_id: str, owner_id: str, list_id: str) -> bool:
    """Delete a list of a person. False if there is none of this id."""
    found = await connection.fetchval(_DELETE, tenant_id=tenant_id, owner_id=owner_id, list_id=list_id)
    return found is not None


def _view(row: Row) -> RunListView:
    return RunListView(
        id=row["id"],
        name=row["name"],
        query=read_stored(RunListQuery.model_validate, row["query"]),
        created_at=row["created_at"],
    )
