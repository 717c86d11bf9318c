"""Orchestrations that agents start: once per tool call, with an end that is awaited or reported to a thread."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

_WAIT_KINDS = "'user', 'approval', 'agent', 'timer', 'message'"


def _replace_wait_kinds(kinds: str) -> None:
    name = op.f("ck_run_waits__kind")
    op.drop_constraint(name, "run_waits")
    op.create_check_constraint(name, "run_waits", f"kind IN ({kinds})")


def upgrade() -> None:
    op.add_column(
        "orchestrations", sa.Column("start_key", sa.Text(), nullable=True, comment="Turn and tool call that started it")
    )
    op.add_column(
        "orchestrations",
        sa.Column(
            "report_thread_id",
            sa.Text(collation="C"),
            nullable=True,
            comment="The thread that gets a message when it ends",
        ),
    )
    op.create_index(
        "uq_orchestrations__start_key",
        "orchestrations",
        ["tenant_id", "start_key"],
        unique=True,
        postgresql_where=sa.text("start_key IS NOT NULL"),
    )
    _replace_wait_kinds(f"{_WAIT_KINDS}, 'orchestration'")


def downgrade() -> None:
    _replace_wait_kinds(_WAIT_KINDS)
    op.drop_index("uq_orchestrations__start_key", "orchestrations")
    op.drop_column("orchestrations", "report_thread_id")
    op.drop_column("orchestrations", "start_key")
