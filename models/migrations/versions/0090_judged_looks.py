"""What the last look of each guardrail found, and changes of rollouts in the stream of changes."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from nova_workers.base.release import part

changes = part("models.changes")

revision = "0090"
down_revision = "0089"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # The default is constant: the table is locked for an instant, and not rewritten.
    op.add_column(
        "rollouts",
        sa.Column(
            "judged",
            postgresql.JSONB(),
            server_default=sa.text("'{}'"),
            nullable=False,
            comment="contracts.http.rollouts.RolloutLook, by measure: what these looks found",
        ),
    )
    for statement in changes.record_changes({"rollouts"}):
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    for statement in changes.forget_changes({"rollouts"}):
        op.get_bind().exec_driver_sql(statement)
    op.drop_column("rollouts", "judged")
