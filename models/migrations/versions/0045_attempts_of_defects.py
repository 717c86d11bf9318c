"""An attempt may end with an exception that no code expected.

Processes of the release before never write the new word.
"""

from alembic import op

revision = "0045"
down_revision = "0044"
branch_labels = None
depends_on = None

_CHECK = "ck_run_attempts__ended"


def upgrade() -> None:
    _replace("ended IN ('waiting', 'requeued', 'lost', 'engine_error')")


def downgrade() -> None:
    op.execute("UPDATE run_attempts SET ended = 'requeued' WHERE ended = 'engine_error'")
    _replace("ended IN ('waiting', 'requeued', 'lost')")


def _replace(condition: str) -> None:
    op.drop_constraint(op.f(_CHECK), "run_attempts", type_="check")
    # Each row fulfils it already or cannot have been written: no scan while the table is locked.
    op.execute(f"ALTER TABLE run_attempts ADD CONSTRAINT {_CHECK} CHECK ({condition}) NOT VALID")
    op.execute(f"ALTER TABLE run_attempts VALIDATE CONSTRAINT {_CHECK}")
