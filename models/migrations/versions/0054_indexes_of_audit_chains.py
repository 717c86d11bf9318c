"""The indexes of the chains over the audit log."""

from alembic import op

from nova_workers.base.release import part

create_index = part("models.migrations.concurrently").create_index


revision = "0054"
down_revision = "0053"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_index("ix_audit_events__chain", "audit_events", ["tenant_id", "seq"])
    create_index("ix_audit_events__unsealed", "audit_events", ["id"], where="seq IS NULL")


def downgrade() -> None:
    with op.get_context().autocommit_block():
        for name in ("ix_audit_events__chain", "ix_audit_events__unsealed"):
            op.drop_index(name, "audit_events", postgresql_concurrently=True, if_exists=True)
