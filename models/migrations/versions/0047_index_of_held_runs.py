"""The index of held runs: few of all, and none while every provider can be used."""

from alembic import op

from nova_workers.base.release import part

create_index = part("models.migrations.concurrently").create_index


revision = "0047"
down_revision = "0046"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_index("ix_runs__held", "runs", ["thread_id"], where="hold IS NOT NULL")


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.drop_index("ix_runs__held", "runs", postgresql_concurrently=True, if_exists=True)
