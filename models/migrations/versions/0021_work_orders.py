"""Work orders: validated requests, their model jobs and trails; and their deliveries."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

_KINDS = "'notification', 'file', 'note', 'question', 'approval', 'run_completed', 'test'"
_ORDER_KINDS = "'work_order_completed', 'work_order_review'"


def _replace_kinds(kinds: str) -> None:
    name = op.f("ck_deliveries__kind")
    op.drop_constraint(name, "deliveries")
    op.create_check_constraint(name, "deliveries", f"kind IN ({kinds})")


def upgrade() -> None:
    op.create_table(
        "work_orders",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("policy_id", sa.Text(), nullable=False),
        sa.Column("policy_version", sa.Text(), nullable=False),
        sa.Column("schema_version", sa.Text(), nullable=False, comment="Of the kind of artifact"),
        sa.Column("trace", JSONB(), nullable=False, comment="contracts.orders.EngineTrace, as the caller gave it"),
        sa.Column("presentation_mode", sa.Text(), nullable=True),
        sa.Column(
            "customer_trail",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
            comment="Whether the customer trail is recorded",
        ),
        sa.Column(
            "internal_trail",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
            comment="Whether the internal trail is recorded",
        ),
        sa.Column("traceparent", sa.Text(), nullable=True),
        sa.Column(
            "fingerprint",
            sa.Text(),
            nullable=False,
            comment="HMAC of the content under its key, which the end destroys",
        ),
        sa.Column("state", sa.Text(), server_default=sa.text("'running'"), nullable=False),
        sa.Column("stage", sa.Text(), server_default=sa.text("'craft'"), nullable=False),
        sa.Column(
            "round",
            sa.Integer(),
            server_default=sa.text("1"),
            nullable=False,
            comment="The present round (swirl), from 1",
        ),
        sa.Column("max_rounds", sa.Integer(), nullable=False),
        sa.Column("max_tokens", sa.BigInteger(), nullable=False),
        sa.Column("max_cost_usd", sa.Numeric(precision=18, scale=8), nullable=False),
        sa.Column(
            "least_output_tokens", sa.Integer(), nullable=False, comment="A call that could afford less is not made"
        ),
        sa.Column("ttl_hours", sa.Float(), nullable=False, comment="How long an equal order gets the same result"),
        sa.Column("deadline_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column(
            "data_key",
            sa.LargeBinary(),
            nullable=True,
            comment="Key of the sealed columns, encrypted with a master key; null after the end",
        ),
        sa.Column("data_key_id", sa.Text(), nullable=True, comment="Which master key"),
        sa.Column("sealed", sa.LargeBinary(), nullable=True, comment="Order and policy, encrypted; null after the end"),
        sa.Column(
            "sealed_draft",
            sa.LargeBinary(),
            nullable=True,
            comment="The outcome that a person reviews, encrypted; null after the end",
        ),
        sa.Column("stop_reason", sa.Text(), nullable=True, comment="Why it ended, before the mapping for customers"),
        sa.Column("needs_human", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column(
            "outcome", JSONB(), nullable=True, comment="orders.outcome.Outcome: customer-safe artifacts, figures"
        ),
        sa.Column("review_due_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "reviewed", sa.Text(), nullable=True, comment="How a person decided: approve, edit, reject or expired"
        ),
        sa.Column("reviewed_by", sa.Text(collation="C"), nullable=True, comment="The key of that person"),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("stage IN ('craft', 'review', 'general')", name=op.f("ck_work_orders__stage")),
        sa.CheckConstraint("state IN ('running', 'review', 'ended')", name=op.f("ck_work_orders__state")),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("fk_work_orders__tenant_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_work_orders")),
        comment="A work order. Its content exists only encrypted, under a key that is destroyed when the order ends.",
    )
    op.create_index(
        "ix_work_orders__ended_at",
        "work_orders",
        ["ended_at"],
        unique=False,
        postgresql_where=sa.text("state = 'ended'"),
    )
    op.create_index(
        "ix_work_orders__open", "work_orders", ["id"], unique=False, postgresql_where=sa.text("state <> 'ended'")
    )
    op.create_index(op.f("ix_work_orders__tenant_id_id"), "work_orders", ["tenant_id", "id"], unique=False)
    op.create_table(
        "work_order_keys",
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("key_hash", sa.Text(), nullable=False),
        sa.Column("policy_version", sa.Text(), nullable=False),
        sa.Column("schema_version", sa.Text(), nullable=False),
        sa.Column("order_id", sa.Text(collation="C"), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False, comment="Infinity while the order is open"),
        sa.ForeignKeyConstraint(
            ["order_id"], ["work_orders.id"], name=op.f("fk_work_order_keys__order_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint(
            "tenant_id", "key_hash", "policy_version", "schema_version", name=op.f("pk_work_order_keys")
        ),
        comment="Which order equal orders share: the live one of a key hash. Another version of policy or schema has another.",
    )
    op.create_index(op.f("ix_work_order_keys__expires_at"), "work_order_keys", ["expires_at"], unique=False)
    op.create_index(op.f("ix_work_order_keys__order_id"), "work_order_keys", ["order_id"], unique=False)
    op.create_table(
        "work_order_parts",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("order_id", sa.Text(collation="C"), nullable=False),
        sa.Column("run_id", sa.Text(collation="C"), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False, comment="Its name in the policy"),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False, comment="Within kind and round, from 0"),
        sa.Column(
            "attempts",
            sa.Integer(),
            server_default=sa.text("0"),
            nullable=False,
            comment="Grows when a worker begins it; fences writes of earlier attempts",
        ),
        sa.Column("calls", sa.Integer(), server_default=sa.text("0"), nullable=False, comment="Model calls"),
        sa.Column(
            "reserved_tokens",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="Of the call in progress, at worst",
        ),
        sa.Column("reserved_usd", sa.Numeric(precision=18, scale=8), nullable=False),
        sa.Column("used_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("used_usd", sa.Numeric(precision=18, scale=8), nullable=False),
        sa.Column(
            "usage", JSONB(), server_default=sa.text("'{}'"), nullable=False, comment="contracts.usage.TokenUsage"
        ),
        sa.Column("engine", sa.Text(), nullable=True),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("provider", sa.Text(), nullable=True),
        sa.Column(
            "sealed_output",
            sa.LargeBinary(),
            nullable=True,
            comment="Its answer, encrypted; null after the order's end",
        ),
        sa.Column("fingerprint", sa.Text(), nullable=True, comment="HMAC of its answer, or of the provider's error"),
        sa.Column("confidence", sa.Float(), nullable=True),
        sa.Column("approved", sa.Boolean(), nullable=True),
        sa.Column("stop_reason", sa.Text(), nullable=True, comment="Null while it is open"),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("kind IN ('craft', 'review', 'general')", name=op.f("ck_work_order_parts__kind")),
        sa.ForeignKeyConstraint(
            ["order_id"], ["work_orders.id"], name=op.f("fk_work_order_parts__order_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_work_order_parts")),
        comment="One model job of an order: one role, in one round. It is executed by one run.",
    )
    op.create_index(
        "ix_work_order_parts__open",
        "work_order_parts",
        ["order_id"],
        unique=False,
        postgresql_where=sa.text("stop_reason IS NULL"),
    )
    op.create_index(op.f("ix_work_order_parts__order_id_id"), "work_order_parts", ["order_id", "id"], unique=False)
    op.create_index(
        "uq_work_order_parts__place", "work_order_parts", ["order_id", "round", "kind", "position"], unique=True
    )
    op.create_index("uq_work_order_parts__run_id", "work_order_parts", ["run_id"], unique=True)
    op.create_table(
        "work_order_trail",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("order_id", sa.Text(collation="C"), nullable=False),
        sa.Column("audience", sa.Text(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("data", JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("audience IN ('customer', 'internal')", name=op.f("ck_work_order_trail__audience")),
        sa.ForeignKeyConstraint(
            ["order_id"], ["work_orders.id"], name=op.f("fk_work_order_trail__order_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_work_order_trail")),
        comment="What happened to an order. Append-only; no content of orders, prompts or answers.",
    )
    op.create_index(op.f("ix_work_order_trail__order_id_id"), "work_order_trail", ["order_id", "id"], unique=False)
    _replace_kinds(f"{_KINDS}, {_ORDER_KINDS}")


def downgrade() -> None:
    op.execute(f"DELETE FROM deliveries WHERE kind IN ({_ORDER_KINDS})")
    _replace_kinds(_KINDS)
    op.drop_table("work_order_trail")
    op.drop_table("work_order_parts")
    op.drop_table("work_order_keys")
    op.drop_table("work_orders")
