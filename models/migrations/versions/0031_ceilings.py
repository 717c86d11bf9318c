"""Ceilings of tenants, and the scope that raises the trust of agents."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "tenants",
        sa.Column(
            "ceilings",
            JSONB(),
            nullable=True,
            comment="What its agents may be given at most, see contracts.agents; null permits everything",
        ),
    )
    # Tenants without a key of an operator are customers: they get the ceilings of a new tenant.
    op.execute(
        "UPDATE tenants t SET ceilings = '{}'"
        " WHERE NOT EXISTS (SELECT FROM api_keys k WHERE k.tenant_id = t.id AND 'operator' = ANY(k.scopes))"
    )
    # Keys keep what they could do: those that wrote agents could give them any trust.
    op.execute("UPDATE api_keys SET scopes = array_append(scopes, 'trust') WHERE 'agents' = ANY(scopes)")


def downgrade() -> None:
    op.execute("UPDATE api_keys SET scopes = array_remove(scopes, 'trust')")
    op.drop_column("tenants", "ceilings")
