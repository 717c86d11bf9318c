"""The schema of new databases in one statement: what the migrations up to a revision make of an empty one.

A new database begins with it, and then gets the migrations that are later. The chain stays: a database of an earlier
release is brought here by it, and a test compares the two. `python -m tests.support.data.baseline` writes the file
again from the chain, at each release; in between it may stay behind.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection

from ..rights.audit_chain import make_audit_role
from ..rights.row_security import make_roles

BASELINE: Final = Path(__file__).with_name("baseline.sql")

_REVISION: Final = re.compile(r"^-- Revision: (\d{4})$", re.MULTILINE)


def baseline_revision() -> str:
    """Return the last migration that the baseline contains."""
    found = _REVISION.search(BASELINE.read_text("utf-8"))
    if found is None:
        raise RuntimeError(f"{BASELINE} does not name its revision; write it again from the migrations.")
    return found[1]


def begin(connection: Connection) -> None:
    """Make the schema in a database that was never migrated, in a transaction of its own. Nothing is made if it fails."""
    script = BASELINE.read_text("utf-8")

    async def execute(driver: Any) -> None:
        async with driver.transaction():
            for statement in (*make_roles(), make_audit_role()):
                await driver.execute(statement)
            await driver.execute(script)

    connection.connection.dbapi_connection.run_async(execute)  # pyright: ignore[reportOptionalMemberAccess] - it is open
