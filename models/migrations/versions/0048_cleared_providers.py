"""The audit log: that an operator cleared a model provider, which changes no row."""

from alembic import op

from models.rights.audit import record_clearings

revision = "0048"
down_revision = "0047"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for statement in record_clearings():
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    op.execute("DROP FUNCTION record_clearing")
