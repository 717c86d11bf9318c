"""Compactions: one in the middle of a turn stands for that turn's first steps too. Runs: time is a limit."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_WORDS = "The last step of the turn after it that the summary stands for, if any"
_LIMITS = "turns, tokens, cost or time: the bound that ended the turn"
_LIMITS_BEFORE = "turns, tokens or cost: the bound that ended the turn"


def upgrade() -> None:
    op.add_column("compactions", sa.Column("through_step", sa.Integer(), nullable=True, comment=_WORDS))
    op.alter_column("runs", "limit_reached", comment=_LIMITS, existing_comment=_LIMITS_BEFORE)


def downgrade() -> None:
    op.alter_column("runs", "limit_reached", comment=_LIMITS_BEFORE, existing_comment=_LIMITS)
    op.drop_column("compactions", "through_step")
