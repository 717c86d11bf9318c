"""State documents of threads."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from nova_workers.base.release import part

audit = part("models.rights.audit").audit
protect = part("models.rights.row_security").protect

revision = "0065"
down_revision = "0064"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "thread_states",
        sa.Column("thread_id", sa.Text(collation="C"), nullable=False),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("state", postgresql.JSONB(), nullable=False),
        sa.Column(
            "version",
            sa.BigInteger(),
            server_default=sa.text("1"),
            nullable=False,
            comment="Grows with each change; a write with another one is refused",
        ),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["thread_id"], ["threads.id"], name=op.f("fk_thread_states__thread_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("thread_id", name=op.f("pk_thread_states")),
        comment="The state document of a thread, apart from its row: claims and messages lock and copy that.",
        postgresql_with={"fillfactor": "70"},
    )
    for statement in (*protect("thread_states"), *audit(["thread_states"])):
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    op.drop_table("thread_states")
