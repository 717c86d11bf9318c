"""The audit log: its table, its rights, and the function that adds records."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY

from nova_workers.base.release import part

RECORD_AUDIT = part("models.rights.audit").RECORD_AUDIT
restrict_audit = part("models.rights.audit_chain").restrict_audit
protect = part("models.rights.row_security").protect


revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "audit_events",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("actor_kind", sa.Text(), nullable=False, comment="key or agent"),
        sa.Column("actor_id", sa.Text(collation="C"), nullable=False),
        sa.Column("address", sa.Text(), nullable=True, comment="Of the client whose request it was"),
        sa.Column("trace_id", sa.Text(), nullable=True, comment="Of the request, as in logs and traces"),
        sa.Column("run_id", sa.Text(collation="C"), nullable=True, comment="The run whose agent did it"),
        sa.Column("action", sa.Text(), nullable=False, comment="Kind of the thing and a verb, such as agent.updated"),
        sa.Column("target_kind", sa.Text(), nullable=False),
        sa.Column("target_id", sa.Text(), nullable=False),
        sa.Column(
            "fields",
            ARRAY(sa.Text()),
            server_default=sa.text("'{}'"),
            nullable=False,
            comment="Names of columns that an update changed; never their values",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_events")),
        comment="One change that a key or an agent made: who, what, which thing, from where. Never updated.",
    )
    op.create_index("ix_audit_events__tenant_id_id", "audit_events", ["tenant_id", "id"])
    op.create_index("ix_audit_events__target", "audit_events", ["tenant_id", "target_kind", "target_id", "id"])
    op.create_index("ix_audit_events__actor", "audit_events", ["tenant_id", "actor_id", "id"])
    op.create_index("ix_audit_events__at", "audit_events", ["at"])
    for statement in (*protect("audit_events"), *restrict_audit("audit_events")):
        op.execute(statement)
    op.get_bind().exec_driver_sql(RECORD_AUDIT)


def downgrade() -> None:
    op.execute("DROP FUNCTION record_audit()")
    op.drop_table("audit_events")
