"""Keys have a role, networks from which they may be used, and a successor."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from nova_workers.base.release import part

audit = part("models.rights.audit").audit

revision = "0076"
down_revision = "0075"
branch_labels = None
depends_on = None

_BEFORE = "See contracts.http.keys.Scope; each permits reading and writing"
_AFTER = "See contracts.http.scopes.Scope"


def upgrade() -> None:
    # Nullable, or with a constant default: the table is not rewritten.
    op.add_column(
        "api_keys",
        sa.Column(
            "role",
            sa.Text(),
            nullable=True,
            comment="The role that it was made with; its scopes are those of that time",
        ),
    )
    op.add_column(
        "api_keys",
        sa.Column(
            "networks",
            postgresql.ARRAY(sa.Text()),
            server_default="{}",
            nullable=False,
            comment="CIDRs of the clients that may use it; empty: all",
        ),
    )
    op.add_column(
        "api_keys",
        sa.Column("replaced_by", sa.Text(collation="C"), nullable=True, comment="The key that it was rotated to"),
    )
    op.alter_column("api_keys", "scopes", comment=_AFTER, existing_comment=_BEFORE)
    for statement in audit({"api_keys"}):
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    op.alter_column("api_keys", "scopes", comment=_BEFORE, existing_comment=_AFTER)
    # A key that was bounded must not become one that is valid everywhere; the release before knows no such scopes.
    op.execute("UPDATE api_keys SET revoked_at = COALESCE(revoked_at, now()) WHERE networks <> '{}'")
    op.execute(
        "UPDATE api_keys SET scopes = ARRAY(SELECT s FROM unnest(scopes) AS s"
        " WHERE s <> ALL ('{runs:read,agents:read,workspace:read,pause}'))"
    )
    op.drop_column("api_keys", "replaced_by")
    op.drop_column("api_keys", "networks")
    op.drop_column("api_keys", "role")
