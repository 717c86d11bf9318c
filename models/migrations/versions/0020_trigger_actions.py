"""Triggers that start orchestrations."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "triggers",
        sa.Column(
            "action",
            sa.Text(),
            server_default=sa.text("'run'"),
            nullable=False,
            comment="What it starts; the prompt is the message of a run, or the task",
        ),
    )
    op.create_check_constraint(op.f("ck_triggers__action"), "triggers", "action IN ('run', 'orchestrate')")


def downgrade() -> None:
    op.drop_constraint(op.f("ck_triggers__action"), "triggers")
    op.drop_column("triggers", "action")
