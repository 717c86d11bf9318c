"""Trigger firings: a slot may be queued behind the run of an earlier one."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_CHECK = "ck_trigger_firings__outcome"
"""Its whole name: without `op.f` the convention of `models.base` would be applied to it again."""
_INDEX = "ix_trigger_firings__queued"


def upgrade() -> None:
    op.drop_constraint(op.f(_CHECK), "trigger_firings")
    op.create_check_constraint(op.f(_CHECK), "trigger_firings", "outcome IN ('fired', 'queued', 'skipped')")
    op.create_index(
        _INDEX, "trigger_firings", ["trigger_id", "scheduled_for"], postgresql_where=sa.text("outcome = 'queued'")
    )


def downgrade() -> None:
    op.execute("UPDATE trigger_firings SET outcome = 'skipped', skip_reason = 'overlap' WHERE outcome = 'queued'")
    op.drop_index(_INDEX, "trigger_firings")
    op.drop_constraint(op.f(_CHECK), "trigger_firings")
    op.create_check_constraint(op.f(_CHECK), "trigger_firings", "outcome IN ('fired', 'skipped')")
