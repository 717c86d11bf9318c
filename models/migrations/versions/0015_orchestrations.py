"""Orchestrations: trees of agents, the messages between them, and waits for such messages."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_WAIT_KINDS = "'user', 'approval', 'agent', 'timer'"


def _replace_wait_kinds(kinds: str) -> None:
    name = op.f("ck_run_waits__kind")
    op.drop_constraint(name, "run_waits")
    op.create_check_constraint(name, "run_waits", f"kind IN ({kinds})")


def upgrade() -> None:
    op.create_table(
        "orchestrations",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column(
            "agent_id",
            sa.Text(collation="C"),
            nullable=False,
            comment="The agent whose trust, directories and budgets bound the tree",
        ),
        sa.Column("master_id", sa.Text(collation="C"), nullable=False),
        sa.Column(
            "thread_id",
            sa.Text(collation="C"),
            nullable=False,
            comment="Of its master; the orchestration is deleted with it",
        ),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column(
            "config",
            postgresql.JSONB(),
            server_default=sa.text("'{}'"),
            nullable=False,
            comment="orchestration.config.OrchestrationConfig, frozen",
        ),
        sa.Column(
            "limits",
            postgresql.JSONB(),
            server_default=sa.text("'{}'"),
            nullable=False,
            comment="contracts.orchestration.OrchestrationLimits, frozen",
        ),
        sa.Column(
            "config_version",
            sa.Integer(),
            nullable=True,
            comment="Of the tenant's; null without one",
        ),
        sa.Column("queue", sa.Text(), server_default=sa.text("'interactive'"), nullable=False),
        sa.Column("source", sa.Text(), server_default=sa.text("'api'"), nullable=False, comment="What started it"),
        sa.Column("source_run_id", sa.Text(collation="C"), nullable=True, comment="The run whose agent started it"),
        sa.Column("meta", postgresql.JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("deadline_at", sa.DateTime(timezone=True), nullable=True, comment="End of its time budget"),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column(
            "finished_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="When its master ended; null again after a continuation",
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("fk_orchestrations__tenant_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["thread_id"], ["threads.id"], name=op.f("fk_orchestrations__thread_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_orchestrations")),
        comment="One task for a tree of agents. Its row is locked by every transaction that routes messages in the tree.",
    )
    op.create_index(
        "ix_orchestrations__open",
        "orchestrations",
        ["id"],
        unique=False,
        postgresql_where=sa.text("finished_at IS NULL"),
    )
    op.create_index(op.f("ix_orchestrations__tenant_id_id"), "orchestrations", ["tenant_id", "id"], unique=False)
    op.create_index(op.f("ix_orchestrations__thread_id"), "orchestrations", ["thread_id"], unique=False)
    op.create_table(
        "orchestration_agents",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("orchestration_id", sa.Text(collation="C"), nullable=False),
        sa.Column(
            "parent_id", sa.Text(collation="C"), nullable=True, comment="The agent that spawned it; null for the master"
        ),
        sa.Column("thread_id", sa.Text(collation="C"), nullable=False),
        sa.Column("run_id", sa.Text(collation="C"), nullable=False, comment="The run of its latest activation"),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), server_default=sa.text("'PENDING'"), nullable=False),
        sa.Column("depth", sa.Integer(), server_default=sa.text("0"), nullable=False, comment="0 for the master"),
        sa.Column("name", sa.Text(), nullable=False, comment="For people"),
        sa.Column("prompt", sa.Text(), nullable=False, comment="What its latest activation is to do"),
        sa.Column(
            "tools", postgresql.JSONB(), nullable=True, comment="Native tools that it may use; null is all of its trust"
        ),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("cwd", sa.Text(), nullable=True),
        sa.Column(
            "plugins",
            postgresql.ARRAY(sa.Text()),
            server_default=sa.text("'{}'"),
            nullable=False,
            comment="MCP servers, by name",
        ),
        sa.Column("permission_mode", sa.Text(), server_default=sa.text("'DEFAULT'"), nullable=False),
        sa.Column("expert_id", sa.Text(), nullable=True),
        sa.Column("category", sa.Text(), nullable=True, comment="Task category, for the ranking of models"),
        sa.Column("spec", postgresql.JSONB(), nullable=False, comment="contracts.agents.AgentSpec that its runs use"),
        sa.Column("activations", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column(
            "reasoning_ms",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="Model time of this activation in attempts that ended",
        ),
        sa.Column("summary", sa.Text(), nullable=True, comment="Result of its latest activation"),
        sa.Column("artifacts", postgresql.JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("error_code", sa.Text(), nullable=True, comment="Why it failed: the code of an error"),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("progress", postgresql.JSONB(), nullable=True, comment="Latest report_progress: status, percent, at"),
        sa.Column(
            "state_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="Latest change of state",
        ),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "permission_mode IN ('DEFAULT', 'ACCEPT_EDITS', 'BYPASS', 'PLAN', 'DELEGATE')",
            name=op.f("ck_orchestration_agents__permission_mode"),
        ),
        sa.CheckConstraint(
            "role IN ('MASTER', 'WORKER', 'EXPERT', 'REVIEWER')", name=op.f("ck_orchestration_agents__role")
        ),
        sa.CheckConstraint(
            "state IN ('PENDING', 'STARTING', 'RUNNING', 'WAITING_FOR_PARENT', 'WAITING_FOR_CHILD', 'WAITING_FOR_EXPERT', 'COMPLETED', 'FAILED', 'KILLED')",
            name=op.f("ck_orchestration_agents__state"),
        ),
        sa.ForeignKeyConstraint(
            ["orchestration_id"],
            ["orchestrations.id"],
            name=op.f("fk_orchestration_agents__orchestration_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["thread_id"], ["threads.id"], name=op.f("fk_orchestration_agents__thread_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_orchestration_agents")),
        comment="An agent of an orchestration: one thread, one run per activation.",
    )
    op.create_index(
        "ix_orchestration_agents__active",
        "orchestration_agents",
        ["orchestration_id"],
        unique=False,
        postgresql_where=sa.text("state NOT IN ('COMPLETED', 'FAILED', 'KILLED')"),
    )
    op.create_index(
        "ix_orchestration_agents__ended_at",
        "orchestration_agents",
        ["ended_at"],
        unique=False,
        postgresql_where=sa.text("ended_at IS NOT NULL"),
    )
    op.create_index(
        op.f("ix_orchestration_agents__orchestration_id_id"),
        "orchestration_agents",
        ["orchestration_id", "id"],
        unique=False,
    )
    op.create_index("uq_orchestration_agents__thread_id", "orchestration_agents", ["thread_id"], unique=True)
    op.create_table(
        "orchestration_messages",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("orchestration_id", sa.Text(collation="C"), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("source_id", sa.Text(collation="C"), nullable=True, comment="The sending agent; null is a person"),
        sa.Column("target_id", sa.Text(collation="C"), nullable=False),
        sa.Column(
            "correlation_id", sa.Text(), nullable=True, comment="What it answers: a question, or the run of a child"
        ),
        sa.Column("payload", postgresql.JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("send_key", sa.Text(), nullable=True, comment="Turn and tool call, or the run whose end it reports"),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("delivered_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "delivered_to",
            sa.Text(collation="C"),
            nullable=True,
            comment="The wait, or the run whose tool call received it",
        ),
        sa.CheckConstraint(
            "type IN ('QUESTION', 'ANSWER', 'PROGRESS_UPDATE', 'TASK_RESULT', 'EXPERT_REQUEST', 'EXPERT_RESPONSE', 'PEER_REQUEST', 'PEER_RESPONSE', 'SPAWN_REQUEST', 'KILL_SIGNAL', 'USER_PROMPT')",
            name=op.f("ck_orchestration_messages__type"),
        ),
        sa.ForeignKeyConstraint(
            ["orchestration_id"],
            ["orchestrations.id"],
            name=op.f("fk_orchestration_messages__orchestration_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_orchestration_messages")),
        comment="A message from one agent of an orchestration to another. It is delivered to one wait or tool call, once.",
    )
    op.create_index(
        op.f("ix_orchestration_messages__orchestration_id_id"),
        "orchestration_messages",
        ["orchestration_id", "id"],
        unique=False,
    )
    op.create_index(
        "ix_orchestration_messages__pending",
        "orchestration_messages",
        ["target_id", "id"],
        unique=False,
        postgresql_where=sa.text("delivered_at IS NULL"),
    )
    op.create_index(
        "uq_orchestration_messages__send_key", "orchestration_messages", ["orchestration_id", "send_key"], unique=True
    )
    op.add_column(
        "threads",
        sa.Column(
            "orchestration_id",
            sa.Text(collation="C"),
            nullable=True,
            comment="The orchestration that one of its agents has it for",
        ),
    )
    _replace_wait_kinds(f"{_WAIT_KINDS}, 'message'")


def downgrade() -> None:
    _replace_wait_kinds(_WAIT_KINDS)
    op.drop_column("threads", "orchestration_id")
    op.drop_table("orchestration_messages")
    op.drop_table("orchestration_agents")
    op.drop_table("orchestrations")
