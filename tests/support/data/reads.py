"""What statements read of a table, by Postgres's own counts."""

from nova_workers.ledger.database import Connection

_READ = """
SELECT COALESCE(sum(pg_stat_get_xact_tuples_returned(relation)), 0)::int
  FROM (SELECT to_regclass(:table) AS relation
         UNION ALL
        SELECT indexrelid FROM pg_index WHERE indrelid = to_regclass(:table)) relations
"""


async def entries_read(connection: Connection, table: str) -> int:
    """Return how many rows of a table, by reading all of it, and entries of its indexes this transaction has read."""
    read: int = await connection.fetchval(_READ, table=table)
    return read
