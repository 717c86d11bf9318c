"""An index for the number of an agent's messages, which each search reads."""

from alembic import op

from nova_workers.base.release import part

create_index = part("models.migrations.concurrently").create_index


revision = "0041"
down_revision = "0040"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_index("ix_message_texts__tenant_id_agent_id", "message_texts", ["tenant_id", "agent_id"])


def downgrade() -> None:
    op.drop_index("ix_message_texts__tenant_id_agent_id", "message_texts")
