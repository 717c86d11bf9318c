"""No statistics of the columns that say whether a row is open (see `models.base`).

Before Postgres 18 only a superuser can delete what an earlier ANALYZE has found (docs/operations.md).
"""

import sqlalchemy as sa
from alembic import op

revision = "0044"
down_revision = "0043"
branch_labels = None
depends_on = None

# As `models.base` has them today: what a migration does must not change with it.
_COLUMNS = {
    "runs": "status",
    "run_waits": "status",
    "effects": "status",
    "deliveries": "status",
    "work_orders": "state",
    "orchestration_agents": "state",
}
_CLEAR = sa.text("SELECT pg_clear_attribute_stats(current_schema(), :table, :column, false)")
_CLEARS_SINCE = 180000


def upgrade() -> None:
    for table, column in _COLUMNS.items():
        op.execute(f"ALTER TABLE {table} ALTER COLUMN {column} SET STATISTICS 0")
    if op.get_bind().scalar(sa.text("SELECT current_setting('server_version_num')::int")) >= _CLEARS_SINCE:
        for table, column in _COLUMNS.items():
            op.get_bind().execute(_CLEAR, {"table": table, "column": column})


def downgrade() -> None:
    for table, column in _COLUMNS.items():
        op.execute(f"ALTER TABLE {table} ALTER COLUMN {column} SET STATISTICS -1")
