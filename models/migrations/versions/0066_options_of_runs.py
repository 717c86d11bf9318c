"""A run may have options of its caller, and wait for the results of tools that the caller executes."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0066"
down_revision = "0065"
branch_labels = None
depends_on = None

_CHECK = "ck_run_waits__kind"
_KINDS = "'user', 'approval', 'agent', 'timer', 'message', 'orchestration'"


def upgrade() -> None:
    op.add_column(
        "runs",
        sa.Column("options", postgresql.JSONB(), comment="contracts.run_options.RunOptions"),
    )
    _replace(f"kind IN ({_KINDS}, 'client_tool')")


def downgrade() -> None:
    op.execute("UPDATE run_waits SET status = 'canceled', kind = 'user' WHERE kind = 'client_tool'")
    _replace(f"kind IN ({_KINDS})")
    op.drop_column("runs", "options")


def _replace(condition: str) -> None:
    op.drop_constraint(op.f(_CHECK), "run_waits", type_="check")
    # Each row fulfils it already or cannot have been written: no scan while the table is locked.
    op.execute(f"ALTER TABLE run_waits ADD CONSTRAINT {_CHECK} CHECK ({condition}) NOT VALID")
    op.execute(f"ALTER TABLE run_waits VALIDATE CONSTRAINT {_CHECK}")
