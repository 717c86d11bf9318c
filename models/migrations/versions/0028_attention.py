"""Indexes for what needs a person."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

_INDEXES = (
    ("ix_run_waits__asks", "run_waits", "status = 'open' AND kind IN ('user', 'approval')"),
    ("ix_triggers__paused", "triggers", "paused_reason IS NOT NULL AND deleted_at IS NULL"),
    ("ix_tasks__parked", "tasks", "status = 'active' AND parked_reason IS NOT NULL"),
    ("ix_work_orders__review", "work_orders", "state = 'review'"),
)


def upgrade() -> None:
    for name, table, condition in _INDEXES:
        op.create_index(name, table, ["tenant_id", "id"], postgresql_where=sa.text(condition))


def downgrade() -> None:
    for name, table, _ in _INDEXES:
        op.drop_index(name, table)
