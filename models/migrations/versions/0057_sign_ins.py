"""Sessions of people, so that signing out ends one everywhere and an idle one ends."""

import sqlalchemy as sa
from alembic import op

from nova_workers.base.release import part

protect = part("models.rights.row_security").protect


revision = "0057"
down_revision = "0056"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "sign_ins",
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("key_id", sa.Text(collation="C"), nullable=False, comment="The key that the person signed in with"),
        sa.Column("idle_s", sa.Integer(), nullable=False, comment="It ends after this long without a request"),
        sa.Column(
            "seen_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="Of its last request, exact to a minute",
        ),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_sign_ins__tenant_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("tenant_id", "id", name=op.f("pk_sign_ins")),
        comment="A session of a person who signed in with a key; without its row it has ended.",
    )
    for statement in protect("sign_ins"):
        op.execute(statement)


def downgrade() -> None:
    op.drop_table("sign_ins")
