"""The check of what submitted a run, for the rows of earlier releases."""

from alembic import op

revision = "0085"
down_revision = "0084"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("ALTER TABLE threads VALIDATE CONSTRAINT ck_threads__origin")
        op.execute("ALTER TABLE runs VALIDATE CONSTRAINT ck_runs__source")


def downgrade() -> None:
    """Leave the check as it is."""
