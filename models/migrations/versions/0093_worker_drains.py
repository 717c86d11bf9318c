"""Orders of operators that workers drain."""

import sqlalchemy as sa
from alembic import op

from nova_workers.base.release import part

protect = part("models.rights.row_security").protect

revision = "0093"
down_revision = "0092"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "worker_drains",
        sa.Column("worker_id", sa.Text(collation="C"), nullable=False),
        sa.Column("ordered_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column(
            "ended_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="Null also of a process that ended without recording it",
        ),
        sa.PrimaryKeyConstraint("worker_id", name=op.f("pk_worker_drains")),
        comment="A worker that an operator ordered to drain, and when its process ended.",
    )
    for statement in protect("worker_drains"):
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    op.drop_table("worker_drains")
