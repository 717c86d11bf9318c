"""What models were asked: a row for each model call, and the parts of requests, each stored once."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from nova_workers.base.release import part

protect = part("models.rights.row_security").protect

revision = "0075"
down_revision = "0074"
branch_labels = None
depends_on = None

_ID = sa.Text(collation="C")


def upgrade() -> None:
    op.create_table(
        "model_calls",
        sa.Column("turn_id", _ID, nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("tenant_id", _ID, nullable=False),
        sa.Column(
            "form_id",
            _ID,
            nullable=True,
            comment="In request_parts; null where the engine makes no requests",
        ),
        sa.Column(
            "parent_turn_id", _ID, nullable=True, comment="The turn whose conversation came before, at that time"
        ),
        sa.Column("requested_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("first_token_ms", sa.Integer(), nullable=True, comment="From the request until the response began"),
        sa.ForeignKeyConstraint(["turn_id"], ["turns.id"], name=op.f("fk_model_calls__turn_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("turn_id", "step", name=op.f("pk_model_calls")),
        comment="The model call of a step: what it was asked with, and when.",
    )
    op.create_index(op.f("ix_model_calls__tenant_id_form_id"), "model_calls", ["tenant_id", "form_id"])
    op.create_table(
        "request_parts",
        sa.Column("tenant_id", _ID, nullable=False),
        sa.Column("id", _ID, nullable=False, comment="Hash of its kind and content"),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("content", postgresql.JSONB(), nullable=False),
        sa.Column("parts", postgresql.ARRAY(_ID), nullable=True, comment="Of a form: the ids of its parts"),
        sa.Column(
            "used_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When a worker last wrote it; a part that is not used is kept for hours",
        ),
        sa.CheckConstraint("kind IN ('form', 'section', 'tools')", name=op.f("ck_request_parts__kind")),
        sa.PrimaryKeyConstraint("tenant_id", "id", name=op.f("pk_request_parts")),
        comment="A part of requests: a section of a system prompt, a list of tools, or the form that names such parts.",
    )
    op.create_index(
        op.f("ix_request_parts__parts"),
        "request_parts",
        ["parts"],
        postgresql_using="gin",
        postgresql_where=sa.text("parts IS NOT NULL"),
    )
    for table in ("model_calls", "request_parts"):
        for statement in protect(table):
            op.get_bind().exec_driver_sql(statement)
    # These read already what prompts are made of, and may make keys: else no key could be given the new scope.
    op.execute(
        "UPDATE api_keys SET scopes = array_append(scopes, 'prompts')"
        " WHERE scopes @> '{runs,agents,workspace,keys}' AND NOT 'prompts' = ANY(scopes)"
    )


def downgrade() -> None:
    op.execute("UPDATE api_keys SET scopes = array_remove(scopes, 'prompts')")
    op.drop_table("request_parts")
    op.drop_table("model_calls")
