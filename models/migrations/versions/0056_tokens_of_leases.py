"""Tokens that prove who holds a lease, and the scope `channels`, without which a key has no leases.

Administrative keys get the scope, so that they can make keys of channels. Keys that are only a channel's do not: each
key with `runs` was enough before.
"""

import sqlalchemy as sa
from alembic import op

revision = "0056"
down_revision = "0055"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "leases",
        sa.Column(
            "token_hash", sa.LargeBinary(), nullable=True, comment="SHA-256 of the token that proves who holds it"
        ),
    )
    op.execute(
        "UPDATE api_keys SET scopes = array_append(scopes, 'channels')"
        " WHERE scopes @> '{runs,keys}' AND NOT 'channels' = ANY(scopes)"
    )


def downgrade() -> None:
    op.execute("UPDATE api_keys SET scopes = array_remove(scopes, 'channels')")
    op.drop_column("leases", "token_hash")
