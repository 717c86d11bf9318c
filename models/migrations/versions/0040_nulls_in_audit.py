"""The audit log takes a field that is left out and one that is null for equal."""

from alembic import op

from nova_workers.base.release import part

RECORD_AUDIT = part("models.rights.audit").RECORD_AUDIT


revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.get_bind().exec_driver_sql(RECORD_AUDIT)


def downgrade() -> None:
    """Leave the function: the code before it calls it in the same way."""
