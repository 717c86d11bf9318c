"""Covering indexes for activity over time: a request reads them and not the tables."""

from alembic import op

from nova_workers.base.release import part

_concurrently = part("models.migrations.concurrently")
create_index = _concurrently.create_index
replace_index = _concurrently.replace_index


revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

_BY_ID = "ix_runs__tenant_id_id"
_BY_TIME = "ix_usage__tenant_id_created_at"


def upgrade() -> None:
    create_index(
        "ix_runs__ended",
        "runs",
        ["tenant_id", "finished_at"],
        include=["status", "agent_id", "created_at", "start_at", "started_at"],
        where="finished_at IS NOT NULL",
    )
    replace_index(_BY_ID, "runs", ["tenant_id", "id"], include=["agent_id"])
    replace_index(
        _BY_TIME,
        "usage",
        ["tenant_id", "created_at"],
        include=[
            "agent_id",
            "model",
            "run_id",
            "duration_ms",
            "model_calls",
            "input_tokens",
            "output_tokens",
            "cache_read_tokens",
            "cache_write_tokens",
            "cost_usd",
        ],
    )


def downgrade() -> None:
    op.drop_index(_BY_TIME, "usage")
    op.create_index(_BY_TIME, "usage", ["tenant_id", "created_at"])
    op.drop_index(_BY_ID, "runs")
    op.create_index(_BY_ID, "runs", ["tenant_id", "id"])
    op.drop_index("ix_runs__ended", "runs")
