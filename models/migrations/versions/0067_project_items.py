"""What belongs to projects, which people keep in repositories."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from nova_workers.base.release import part

protect = part("models.rights.row_security").protect

revision = "0067"
down_revision = "0066"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "project_items",
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column(
            "name",
            sa.Text(),
            nullable=False,
            comment="An agent's id, a skill's name, a trigger's key in the project",
        ),
        sa.Column(
            "resource_id",
            sa.Text(collation="C"),
            nullable=False,
            comment="The agent's id, the skill's name, the trigger's id",
        ),
        sa.Column(
            "applied",
            postgresql.JSONB(),
            nullable=False,
            comment="Its configuration as it was last applied; drift is what differs from it",
        ),
        sa.Column("applied_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("kind IN ('agent', 'skill', 'trigger')", name=op.f("ck_project_items__kind")),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("fk_project_items__tenant_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("tenant_id", "project", "kind", "name", name=op.f("pk_project_items")),
        sa.UniqueConstraint(
            "tenant_id", "kind", "resource_id", name=op.f("uq_project_items__tenant_id_kind_resource_id")
        ),
        comment="An agent, a skill or a trigger that a project contains.",
    )
    for statement in protect("project_items"):
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    op.drop_table("project_items")
