"""Questions of waiting runs in the inbox and outside: two kinds of deliveries, and a status for those that are over."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_KINDS = "'notification', 'file', 'note', 'run_completed', 'test'"
_STATUSES = "'pending', 'delivered', 'failed'"
_OVER = "ix_deliveries__over"


def _replace_words(column: str, words: str) -> None:
    name = op.f(f"ck_deliveries__{column}")
    op.drop_constraint(name, "deliveries")
    op.create_check_constraint(name, "deliveries", f"{column} IN ({words})")


def _replace_index(where: str) -> None:
    op.drop_index(_OVER, "deliveries")
    op.create_index(_OVER, "deliveries", ["created_at"], postgresql_where=sa.text(where))


def upgrade() -> None:
    _replace_words("kind", f"{_KINDS}, 'question', 'approval'")
    _replace_words("status", f"{_STATUSES}, 'closed'")
    _replace_index("target <> 'user' AND status IN ('delivered', 'failed', 'closed')")


def downgrade() -> None:
    op.execute("DELETE FROM deliveries WHERE kind IN ('question', 'approval') OR status = 'closed'")
    _replace_words("kind", _KINDS)
    _replace_words("status", _STATUSES)
    _replace_index("status IN ('delivered', 'failed')")
