"""Lists of runs that people saved."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from nova_workers.base.release import part

protect = part("models.rights.row_security").protect

revision = "0080"
down_revision = "0079"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "run_lists",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column(
            "owner_id", sa.Text(collation="C"), nullable=False, comment="The first of the keys that replaced each other"
        ),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("query", postgresql.JSONB(), nullable=False, comment="contracts.http.run_lists.RunListQuery"),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("fk_run_lists__tenant_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run_lists")),
        comment="The filter and the order of a list of runs, which a person saved under a name.",
    )
    op.create_index(
        op.f("ix_run_lists__tenant_id_owner_id_name"), "run_lists", ["tenant_id", "owner_id", "name"], unique=True
    )
    for statement in protect("run_lists"):
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    op.drop_table("run_lists")
