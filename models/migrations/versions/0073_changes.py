"""Changes of a tenant's things, which clients follow."""

import sqlalchemy as sa
from alembic import op

from nova_workers.base.release import part

changes = part("models.changes")
protect = part("models.rights.row_security").protect

revision = "0073"
down_revision = "0072"
branch_labels = None
depends_on = None

_TABLES = (
    *("runs", "run_waits", "threads", "orchestrations", "orchestration_agents", "tasks", "triggers"),
    *("trigger_firings", "deliveries", "webhooks", "switches"),
)
"""Those that existed then."""


def upgrade() -> None:
    op.create_table(
        "changes",
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False, comment="Empty for a pause of the fleet"),
        sa.Column(
            "xact",
            sa.BigInteger(),
            nullable=False,
            comment="The transaction, as pg_current_xact_id has it",
        ),
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False, comment="base.vocabulary.ChangeSubject"),
        sa.Column("subject_id", sa.Text(collation="C"), nullable=False),
        sa.Column("change", sa.Text(), nullable=False, comment="Its new state, or a verb"),
        sa.Column("agent_id", sa.Text(collation="C")),
        sa.Column("thread_id", sa.Text(collation="C")),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "xact", "id", name=op.f("pk_changes")),
        comment="One change of a thing that people follow. Its readers take it once all older transactions have ended.",
    )
    # Those of threads name columns of a later migration, which makes them.
    recorded = {*_TABLES} - {"threads"}
    for statement in (*protect("changes"), *changes.record_changes(recorded)):
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    for statement in changes.forget_changes(_TABLES):
        op.get_bind().exec_driver_sql(statement)
    op.drop_table("changes")
