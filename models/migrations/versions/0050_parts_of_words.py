"""The functions by which search finds parts of words."""

from alembic import op

from nova_workers.base.release import part

PART_FUNCTIONS = part("models.effects").PART_FUNCTIONS


revision = "0050"
down_revision = "0049"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for statement in PART_FUNCTIONS:
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    op.execute("DROP FUNCTION message_part_shares()")
    op.execute("DROP FUNCTION message_parts_asked(text)")
    op.execute("DROP FUNCTION message_parts(text, text, text)")
    op.execute("DROP FUNCTION message_folded(text)")
