"""Statements of the chaos runner itself, which another fault may hit."""

from __future__ import annotations

from nova_workers.ledger.database import Database
from tests.chaos.runner.statements import fetch_past_faults

_ENDS_ITS_SESSION_ONCE = """
SELECT CASE nextval('tries') WHEN 1 THEN pg_terminate_backend(pg_backend_pid()) END, pg_sleep(0.1), currval('tries')
"""


async def test_a_statement_whose_session_a_fault_ends_is_executed_again(database: Database, database_url: str) -> None:
    await database.execute("CREATE SEQUENCE tries")
    (row,) = await fetch_past_faults(database_url, _ENDS_ITS_SESSION_ONCE)
    assert row["currval"] == 2
