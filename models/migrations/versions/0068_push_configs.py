"""Clients of the A2A door name addresses for the changes of a run, with secrets of theirs."""

import sqlalchemy as sa
from alembic import op

from nova_workers.base.release import part

audit = part("models.rights.audit").audit
protect = part("models.rights.row_security").protect

revision = "0068"
down_revision = "0067"
branch_labels = None
depends_on = None

_CHECK = "ck_deliveries__kind"
_KINDS = (
    "'notification', 'file', 'note', 'question', 'approval', 'run_completed', 'work_order_completed', "
    "'work_order_review', 'audit_recorded', 'test'"
)
_TARGET = "user is the inbox, else the id of a webhook or the name of a channel"


def upgrade() -> None:
    op.create_table(
        "push_configs",
        sa.Column("run_id", sa.Text(collation="C"), nullable=False),
        sa.Column("name", sa.Text(), nullable=False, comment="Its id for the client: chosen by it, or made for it"),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column(
            "secret",
            sa.LargeBinary(),
            comment="The client's token and credentials, encrypted like values of secrets",
        ),
        sa.Column("key_id", sa.Text(), comment="Id of the master key that encrypts them; null without any"),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_push_configs__run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "name", name=op.f("pk_push_configs")),
        comment="A URL that a client named for the changes of one run: a push notification configuration of the A2A "
        "protocol.",
    )
    for statement in (*protect("push_configs"), *audit({"push_configs"})):
        op.get_bind().exec_driver_sql(statement)
    op.add_column(
        "runs",
        sa.Column(
            "has_push_configs",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
            comment="Whether a row of push_configs names an address for its changes",
        ),
    )
    _replace(f"kind IN ({_KINDS}, 'task_changed')")
    op.execute(
        "COMMENT ON COLUMN deliveries.target IS 'user is the inbox, else the id of a webhook, the name of a channel, "
        "or a lane of push notifications'"
    )


def downgrade() -> None:
    op.execute("DELETE FROM deliveries WHERE kind = 'task_changed'")
    _replace(f"kind IN ({_KINDS})")
    op.execute(f"COMMENT ON COLUMN deliveries.target IS '{_TARGET}'")
    op.drop_column("runs", "has_push_configs")
    op.drop_table("push_configs")


def _replace(condition: str) -> None:
    op.drop_constraint(op.f(_CHECK), "deliveries", type_="check")
    # Each row fulfils it already: no scan while the table is locked.
    op.execute(f"ALTER TABLE deliveries ADD CONSTRAINT {_CHECK} CHECK ({condition}) NOT VALID")
    op.execute(f"ALTER TABLE deliveries VALIDATE CONSTRAINT {_CHECK}")
