"""Idempotency keys name other things than runs, too."""

from alembic import op

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None

_BEFORE = "An Idempotency-Key that was used, the run it made and a hash of the body it came with."
_NOW = "An Idempotency-Key that was used, what its request made and a hash of the body it came with."
_RUN_ID = "What it made: a run, or the id of a task, a trigger, a firing or an orchestration"


def upgrade() -> None:
    op.create_table_comment("idempotency_keys", _NOW, existing_comment=_BEFORE)
    op.alter_column("idempotency_keys", "run_id", comment=_RUN_ID, existing_comment=None)


def downgrade() -> None:
    op.alter_column("idempotency_keys", "run_id", comment=None, existing_comment=_RUN_ID)
    op.create_table_comment("idempotency_keys", _BEFORE, existing_comment=_NOW)
