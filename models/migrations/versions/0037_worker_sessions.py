"""Sessions of workers, by which the others see that one has ended."""

import sqlalchemy as sa
from alembic import op

from nova_workers.base.release import part

protect = part("models.rights.row_security").protect


revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "worker_sessions",
        sa.Column("worker_id", sa.Text(collation="C"), nullable=False),
        sa.Column("began_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("worker_id", name=op.f("pk_worker_sessions")),
        comment="A worker that holds its lock in a session of its own: without one it has ended.",
    )
    for statement in protect("worker_sessions"):
        op.execute(statement)


def downgrade() -> None:
    op.drop_table("worker_sessions")
