"""Who has which saved lists of runs, and how many.

A list is of a principal: of a person who came by single sign-on, or of a key with those that it replaced, so that a
rotated key has its lists.
"""

from __future__ import annotations

from nova_workers.base.errors import missing, too_many
from nova_workers.contracts.http.run_lists import MAX_RUN_LISTS, RunListSave, RunListView
from nova_workers.domain.keys.sql.keys import ids_of_principal
from nova_workers.domain.runs.sql import run_lists as ledger
from nova_workers.ledger.database import Connection


async def save_list(connection: Connection, tenant_id: str, principal: str, saved: RunListSave) -> RunListView:
    """Save a list, in place of one of the same name.

    Raises:
        LimitExceeded: The person has the most.
    """
    owner_id = await _owner(connection, tenant_id, principal)
    made = await ledger.save_run_list(connection, tenant_id, owner_id, saved, at_most=MAX_RUN_LISTS)
    if made is None:
        raise too_many(MAX_RUN_LISTS, "saved lists of yours", "Delete one that you no longer use.")
    return made


async def saved_lists(connection: Connection, tenant_id: str, principal: str) -> list[RunListView]:
    """Return the lists of a person, in the order in which they were saved first."""
    return await ledger.run_lists_of(connection, tenant_id, await _owner(connection, tenant_id, principal))


async def delete_list(connection: Connection, tenant_id: str, principal: str, list_id: str) -> None:
    """Delete a list.

    Raises:
        NotFound: The person has no such list.
    """
    if not await ledger.delete_run_list(connection, tenant_id, await _owner(connection, tenant_id, principal), list_id):
        raise missing("run_list", list_id)


async def _owner(connection: Connection, tenant_id: str, principal: str) -> str:
    return (await ids_of_principal(connection, tenant_id, principal))[-1]
