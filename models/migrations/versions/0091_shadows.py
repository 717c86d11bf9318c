"""Shadows of rollouts: the candidate answers turns of the current version, too. Columns without a default."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0091"
down_revision = "0090"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "evaluations",
        sa.Column(
            "rollout_id",
            sa.Text(collation="C"),
            comment="Whose conversations feed it, until the rollout ends",
        ),
    )
    op.add_column("rollouts", sa.Column("shadow", postgresql.JSONB(), comment="contracts.http.rollouts.ShadowView"))


def downgrade() -> None:
    op.drop_column("rollouts", "shadow")
    op.drop_column("evaluations", "rollout_id")
