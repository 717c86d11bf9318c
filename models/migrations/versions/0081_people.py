"""People who come by single sign-on, and when sessions began."""

import sqlalchemy as sa
from alembic import op

from nova_workers.base.release import part

protect = part("models.rights.row_security").protect

revision = "0081"
down_revision = "0080"
branch_labels = None
depends_on = None

_BEFORE = "key, agent or command"
_AFTER = "key, person, agent or command"
_ID = sa.Text(collation="C")


def upgrade() -> None:
    op.create_table(
        "people",
        sa.Column("id", _ID, nullable=False),
        sa.Column("tenant_id", _ID, nullable=False),
        sa.Column("issuer", sa.Text(), nullable=False, comment="The provider that names the person"),
        sa.Column("subject", sa.Text(), nullable=False, comment="The provider's id of the person"),
        sa.Column("email", sa.Text(), nullable=True, comment="As the last token has it"),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("signed_in_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_people__tenant_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_people")),
        comment="A person who came by single sign-on, in one tenant.",
    )
    op.create_index(
        op.f("ix_people__tenant_id_issuer_subject"), "people", ["tenant_id", "issuer", "subject"], unique=True
    )
    # Nullable, or with a default that is computed once: neither table is rewritten.
    op.add_column("api_keys", sa.Column("person_id", _ID, nullable=True, comment="The person whose session it is of"))
    op.add_column(
        "sign_ins",
        sa.Column("began_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
    )
    op.alter_column("audit_events", "actor_kind", comment=_AFTER, existing_comment=_BEFORE)
    for statement in protect("people"):
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    # The release before would list them as keys of the tenant.
    op.execute("DELETE FROM api_keys WHERE person_id IS NOT NULL")
    op.alter_column("audit_events", "actor_kind", comment=_BEFORE, existing_comment=_AFTER)
    op.drop_column("sign_ins", "began_at")
    op.drop_column("api_keys", "person_id")
    op.drop_table("people")
