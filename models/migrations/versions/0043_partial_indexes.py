"""What is due is found by an index that serves nothing else.

Due effects by their kind: a claim for titles read the whole backlog of embeddings. Overdue doorbells with a condition
that only their statement has: plans that were made while few runs were queued read all of the index for one thread.
Processes of the release before find the same rows without these indexes.
"""

from alembic import op

from nova_workers.base.release import part

create_index = part("models.migrations.concurrently").create_index


revision = "0043"
down_revision = "0042"
branch_labels = None
depends_on = None

_OPEN = "status IN ('pending', 'running')"
_QUEUED = "status = 'queued'"


def upgrade() -> None:
    create_index("ix_effects__due_of_kind", "effects", ["kind", "due_at"], where=_OPEN)
    create_index("ix_runs__overdue", "runs", ["rang_at"], where=f"{_QUEUED} AND rang_at < 'infinity'")
    with op.get_context().autocommit_block():
        op.drop_index("ix_effects__due", "effects", postgresql_concurrently=True, if_exists=True)
        op.drop_index("ix_runs__doorbell", "runs", postgresql_concurrently=True, if_exists=True)


def downgrade() -> None:
    create_index("ix_effects__due", "effects", ["due_at"], where=_OPEN)
    create_index("ix_runs__doorbell", "runs", ["rang_at"], where=_QUEUED)
    with op.get_context().autocommit_block():
        op.drop_index("ix_effects__due_of_kind", "effects", postgresql_concurrently=True, if_exists=True)
        op.drop_index("ix_runs__overdue", "runs", postgresql_concurrently=True, if_exists=True)
