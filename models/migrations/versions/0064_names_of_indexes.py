"""Indexes have names by the glossary: a thread's queue, a trigger's occurrence, the position of an order's part."""

from alembic import op

revision = "0064"
down_revision = "0063"
branch_labels = None
depends_on = None

_NAMES = {
    "ix_runs__line": "ix_runs__queue",
    "uq_trigger_firings__slot": "uq_trigger_firings__occurrence",
    "uq_work_order_parts__place": "uq_work_order_parts__position",
}


def upgrade() -> None:
    for before, name in _NAMES.items():
        op.execute(f"ALTER INDEX {before} RENAME TO {name}")


def downgrade() -> None:
    for before, name in _NAMES.items():
        op.execute(f"ALTER INDEX {name} RENAME TO {before}")
