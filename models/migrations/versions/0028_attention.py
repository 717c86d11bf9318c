"""Indexes for the runs of a parent or trigger, for all waits of a run, and for what needs a person."""

from alembic import op

from nova_workers.base.release import part

create_index = part("models.migrations.concurrently").create_index


revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

_INDEXES: tuple[tuple[str, str, tuple[str, ...], str | None], ...] = (
    ("ix_run_waits__run_id", "run_waits", ("run_id",), None),
    ("ix_runs__parent", "runs", ("parent_run_id", "id"), "parent_run_id IS NOT NULL"),
    ("ix_runs__trigger_id_id", "runs", ("trigger_id", "id"), "trigger_id IS NOT NULL"),
    ("ix_run_waits__asks", "run_waits", ("tenant_id", "id"), "status = 'open' AND kind IN ('user', 'approval')"),
    ("ix_triggers__paused", "triggers", ("tenant_id", "id"), "paused_reason IS NOT NULL AND deleted_at IS NULL"),
    ("ix_tasks__parked", "tasks", ("tenant_id", "id"), "status = 'active' AND parked_reason IS NOT NULL"),
    ("ix_work_orders__review", "work_orders", ("tenant_id", "id"), "state = 'review'"),
)


def upgrade() -> None:
    for name, table, columns, condition in _INDEXES:
        create_index(name, table, columns, where=condition)


def downgrade() -> None:
    for name, table, *_ in _INDEXES:
        op.drop_index(name, table)
