"""Attempts of runs."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

_ID = sa.Text(collation="C")


def upgrade() -> None:
    op.add_column("runs", sa.Column("claimed_at", sa.DateTime(timezone=True), nullable=True, comment="Latest claim"))
    op.create_table(
        "run_attempts",
        sa.Column("run_id", _ID, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("tenant_id", _ID, nullable=False),
        sa.Column("worker_id", _ID, nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("ended", sa.Text(), nullable=False),
        sa.CheckConstraint("ended IN ('waiting', 'requeued', 'lost')", name=op.f("ck_run_attempts__ended")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_run_attempts__run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "attempt", name=op.f("pk_run_attempts")),
        comment="An attempt that ended and did not end its run. The latest attempt is in the run itself.",
    )


def downgrade() -> None:
    op.drop_table("run_attempts")
    op.drop_column("runs", "claimed_at")
