"""Changes of a thread's state document."""

from __future__ import annotations

from nova_workers.base.errors import Conflict, LimitExceeded
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.http.thread_states import ThreadStateView
from nova_workers.contracts.thread_state import is_same, merge_patch, size_problem
from nova_workers.domain.threads.sql.states import read_state, write_state
from nova_workers.ledger.database import Connection


async def replace_state(
    connection: Connection, tenant_id: str, thread_id: str, state: JsonObject, *, version: int | None
) -> ThreadStateView:
    """Write a whole document, which is within its bounds, in place of a version; of any, if that is None.

    Raises:
        NotFound: There is no such thread.
        Gone: It was deleted.
        Conflict: The document has another version; ``fields['version']`` is it.
    """
    written = await write_state(connection, tenant_id, thread_id, state, version=version)
    if written is None:
        raise _changed(await read_state(connection, tenant_id, thread_id), thread_id, version)
    return written


async def merge_state(
    connection: Connection, tenant_id: str, thread_id: str, patch: JsonObject, *, version: int | None
) -> ThreadStateView:
    """Apply a JSON Merge Patch to the document, if that has a version, or whichever it has.

    Raises:
        NotFound: There is no such thread.
        Gone: It was deleted.
        Conflict: The document has another version; ``fields['version']`` is it.
        LimitExceeded: It would be too large.
    """
    while True:
        found = await read_state(connection, tenant_id, thread_id)
        if version is not None and found.version != version:
            raise _changed(found, thread_id, version)
        merged = merge_patch(found.state, patch)
        problem = size_problem(merged)
        if problem is not None:
            raise LimitExceeded(
                f"The state of thread {thread_id!r} would be too large: {problem}. Remove fields from it, or keep the "
                "rest elsewhere, such as in notes or files."
            )
        written = await write_state(connection, tenant_id, thread_id, merged, version=found.version)
        if written is not None:
            return written
        # Another change was first: patch what it left.


async def offer_state(
    connection: Connection, tenant_id: str, thread_id: str, state: JsonObject, *, version: int
) -> None:
    """Write the document that a client has, if it changed the newest version, or if there is none yet.

    A change of an older version is dropped: its client did not see what it would overwrite.

    Args:
        state: Within its bounds.
        version: The one that the client had.

    Raises:
        NotFound: There is no such thread.
        Gone: It was deleted.
    """
    found = await read_state(connection, tenant_id, thread_id)
    if found.version in (0, version) and not is_same(found.state, state):
        await write_state(connection, tenant_id, thread_id, state, version=found.version)


def _changed(found: ThreadStateView, thread_id: str, version: int | None) -> Conflict:
    return Conflict(
        f"The state of thread {thread_id!r} has version {found.version}, not {version}. Read it, and send the "
        "change for that version.",
        version=found.version,
        field="version",
    )
