"""The audit log: that an operator cleared a model provider, which changes no row.

The function that recorded it is one for all such acts now; a later migration makes it.
"""

revision = "0048"
down_revision = "0047"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make nothing: what this made before, the later migration drops."""


def downgrade() -> None:
    """Leave nothing behind."""
