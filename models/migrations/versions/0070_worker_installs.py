"""The code of users that agents and runs need, and that workers have."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from nova_workers.base.release import part

protect = part("models.rights.row_security").protect
audit = part("models.rights.audit").audit
agents = part("models.agents")

revision = "0070"
down_revision = "0069"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for statement in (agents.AGENT_NEEDS, agents.AGENT_CODE):
        op.get_bind().exec_driver_sql(statement)
    op.add_column(
        "agents",
        sa.Column(
            "needs",
            postgresql.ARRAY(sa.Text()),
            sa.Computed("agent_needs(spec)", persisted=True),
            comment="Generated from spec: the projects and code that its runs need; null is none",
        ),
    )
    op.add_column(
        "agents",
        sa.Column(
            "code",
            sa.Text(),
            sa.Computed("agent_code(spec)", persisted=True),
            comment="Generated from spec: of an agent in Python, its code",
        ),
    )
    op.add_column(
        "runs",
        sa.Column(
            "needs",
            postgresql.ARRAY(sa.Text()),
            comment="Of that version: the projects and code that it needs; null is none",
        ),
    )
    op.add_column(
        "runs",
        sa.Column(
            "code_version",
            sa.Text(),
            comment="Of an agent in Python: code and digest of the worker that claimed it last",
        ),
    )
    op.create_table(
        "worker_installs",
        sa.Column("worker_id", sa.Text(collation="C"), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False, comment="Empty for the common workers"),
        sa.Column(
            "key",
            sa.Text(),
            nullable=False,
            comment="Equal for workers that have the same; part of the name of their queue",
        ),
        sa.Column(
            "provides",
            postgresql.ARRAY(sa.Text()),
            nullable=False,
            comment="What runs may need, as agents.needs has it",
        ),
        sa.Column("versions", postgresql.ARRAY(sa.Text()), nullable=False, comment="As runs.code_version has them"),
        sa.Column("codes", postgresql.JSONB(), nullable=False, comment="contracts.installs.InstalledCode, for people"),
        sa.Column("seen_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("worker_id", name=op.f("pk_worker_installs")),
        comment="The code of users that a live worker has; the worker renews the row.",
    )
    for statement in (*protect("worker_installs"), *audit({"agents"})):
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    op.drop_table("worker_installs")
    op.drop_column("runs", "code_version")
    op.drop_column("runs", "needs")
    op.drop_column("agents", "code")
    op.drop_column("agents", "needs")
    op.execute("DROP FUNCTION agent_needs(jsonb)")
    op.execute("DROP FUNCTION agent_code(jsonb)")
