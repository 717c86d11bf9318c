"""The tables of the fleet."""

import sqlalchemy as sa
from alembic import op
from pgvector.sqlalchemy import Vector
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_TABLES = (
    "deliveries",
    "idempotency_keys",
    "switches",
    "tenants",
    "usage",
    "agents",
    "api_keys",
    "memories",
    "threads",
    "agent_versions",
    "runs",
    "engine_sessions",
    "thread_heads",
    "turns",
    "compactions",
    "effects",
    "messages",
    "run_waits",
    "tool_calls",
    "embeddings",
)
"""In the order in which they refer to each other."""


def upgrade() -> None:
    op.execute("CREATE EXTENSION IF NOT EXISTS vector")

    op.create_table(
        "deliveries",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("run_id", sa.Text(collation="C"), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("payload", JSONB(), nullable=False),
        sa.Column("status", sa.Text(), server_default=sa.text("'pending'"), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("delivered_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("status IN ('pending', 'delivered', 'failed')", name=op.f("ck_deliveries__status")),
        sa.PrimaryKeyConstraint("id", name="pk_deliveries"),
        comment="Something to hand to the world outside, at least once.",
    )
    op.create_index("ix_deliveries__due", "deliveries", ["due_at"], postgresql_where=sa.text("status = 'pending'"))
    op.create_index("ix_deliveries__tenant_id_id", "deliveries", ["tenant_id", "id"])

    op.create_table(
        "idempotency_keys",
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(collation="C"), nullable=False),
        sa.Column("body_hash", sa.LargeBinary(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "key", name="pk_idempotency_keys"),
        comment="An Idempotency-Key that was used, the run it made and a hash of the body it came with.",
    )
    op.create_index("ix_idempotency_keys__expires_at", "idempotency_keys", ["expires_at"])

    op.create_table(
        "switches",
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False, comment="Empty for the fleet"),
        sa.Column(
            "target", sa.Text(collation="C"), nullable=False, comment="The agent's id; empty for fleet and tenant"
        ),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("scope IN ('fleet', 'tenant', 'agent')", name=op.f("ck_switches__scope")),
        sa.PrimaryKeyConstraint("scope", "tenant_id", "target", name="pk_switches"),
        comment="A pause: nothing new starts within its scope while the row stands.",
    )

    op.create_table(
        "tenants",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tenants"),
        comment="An isolated customer of the fleet. Every other row belongs to one.",
    )

    op.create_table(
        "usage",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("run_id", sa.Text(collation="C"), nullable=True, comment="Null for a compaction"),
        sa.Column("turn_id", sa.Text(collation="C"), nullable=False),
        sa.Column("thread_id", sa.Text(collation="C"), nullable=False),
        sa.Column("agent_id", sa.Text(collation="C"), nullable=False),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("provider", sa.Text(), nullable=True),
        sa.Column("input_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("cache_read_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("cache_write_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("reasoning_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("cost_usd", sa.Numeric(precision=18, scale=8), nullable=True),
        sa.Column("model_calls", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("duration_ms", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_usage"),
        comment="What was used: one row a run, written with its end, and one a compaction.",
    )
    op.create_index("ix_usage__tenant_id_created_at", "usage", ["tenant_id", "created_at"])
    op.create_index("uq_usage__run_id", "usage", ["run_id"], unique=True)
    op.create_index("uq_usage__turn_id", "usage", ["turn_id"], unique=True)

    op.create_table(
        "agents",
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("id", sa.Text(collation="C"), nullable=False, comment="Slug, unique within the tenant"),
        sa.Column("version", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("spec", JSONB(), nullable=False, comment="contracts.agents.AgentSpec"),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_agents__tenant_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("tenant_id", "id", name="pk_agents"),
        comment="An agent as it stands: the newest version's configuration, beside it for one-row reads.",
    )

    op.create_table(
        "api_keys",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("prefix", sa.Text(), nullable=False, comment="First characters of the key, to recognise it by"),
        sa.Column("hash", sa.LargeBinary(), nullable=False, comment="SHA-256 of the whole key"),
        sa.Column(
            "scopes",
            ARRAY(sa.Text()),
            server_default=sa.text("'{}'"),
            nullable=False,
            comment="runs, agents, keys, operator; read and write in one",
        ),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_api_keys__tenant_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
        comment="A bearer key. Only its SHA-256 is kept: 256 random bits need no slow hash.",
    )
    op.create_index("ix_api_keys__hash", "api_keys", ["hash"], unique=True)
    op.create_index("ix_api_keys__tenant_id_id", "api_keys", ["tenant_id", "id"])

    op.create_table(
        "memories",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("agent_id", sa.Text(collation="C"), nullable=False, comment="Who saved it"),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_memories__tenant_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_memories"),
        comment="A fact that all agents of a tenant share.",
    )
    op.create_index("ix_memories__tenant_id_id", "memories", ["tenant_id", "id"])

    op.create_table(
        "threads",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("agent_id", sa.Text(collation="C"), nullable=False),
        sa.Column("label", sa.Text(), nullable=True, comment="A name for the pointer, unique while the thread lives"),
        sa.Column("title", sa.Text(), nullable=True),
        sa.Column(
            "head_turn_id", sa.Text(collation="C"), nullable=True, comment="Newest finished turn; null before the first"
        ),
        sa.Column(
            "active_run_id", sa.Text(collation="C"), nullable=True, comment="The run that holds the thread, if any"
        ),
        sa.Column(
            "fence",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="Grows at every claim; a write that carries an older one is refused",
        ),
        sa.Column(
            "next_seq",
            sa.BigInteger(),
            server_default=sa.text("1"),
            nullable=False,
            comment="Place in line of the next run",
        ),
        sa.Column(
            "turn_count", sa.Integer(), server_default=sa.text("0"), nullable=False, comment="Finished normal turns"
        ),
        sa.Column("session_id", sa.Text(), nullable=True, comment="The SDK session of engines that keep their own"),
        sa.Column("forked_from_thread_id", sa.Text(collation="C"), nullable=True),
        sa.Column("forked_from_turn_id", sa.Text(collation="C"), nullable=True),
        sa.Column("meta", JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_threads__tenant_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_threads"),
        comment="One conversation owned by one agent.",
        postgresql_with={"fillfactor": "70"},
    )
    op.create_index(
        "ix_threads__tenant_id_agent_id_id",
        "threads",
        ["tenant_id", "agent_id", "id"],
        postgresql_where=sa.text("deleted_at IS NULL"),
    )
    op.create_index(
        "ix_threads__tenant_id_id", "threads", ["tenant_id", "id"], postgresql_where=sa.text("deleted_at IS NULL")
    )
    op.create_index(
        "uq_threads__tenant_id_label",
        "threads",
        ["tenant_id", "label"],
        unique=True,
        postgresql_where=sa.text("label IS NOT NULL AND deleted_at IS NULL"),
    )

    op.create_table(
        "agent_versions",
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("agent_id", sa.Text(collation="C"), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("spec", JSONB(), nullable=False),
        sa.Column(
            "created_by",
            sa.Text(),
            server_default=sa.text("'api'"),
            nullable=False,
            comment="api, seed, or the agent that changed itself",
        ),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id", "agent_id"],
            ["agents.tenant_id", "agents.id"],
            name="fk_agent_versions__tenant_id_agent_id",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("tenant_id", "agent_id", "version", name="pk_agent_versions"),
        comment="What an agent was. Immutable; a run names the version it used.",
    )

    op.create_table(
        "runs",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("thread_id", sa.Text(collation="C"), nullable=False),
        sa.Column("agent_id", sa.Text(collation="C"), nullable=False),
        sa.Column("agent_version", sa.Integer(), nullable=True, comment="The version that the claim used"),
        sa.Column("seq", sa.BigInteger(), nullable=False, comment="Place in the thread's line"),
        sa.Column(
            "front",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
            comment="Goes before the line: it interrupted the run that was active",
        ),
        sa.Column("status", sa.Text(), server_default=sa.text("'queued'"), nullable=False),
        sa.Column("queue", sa.Text(), server_default=sa.text("'interactive'"), nullable=False),
        sa.Column("on_busy", sa.Text(), server_default=sa.text("'enqueue'"), nullable=False),
        sa.Column("source", sa.Text(), server_default=sa.text("'api'"), nullable=False),
        sa.Column("content", JSONB(), nullable=False, comment="The user's message as content blocks"),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("max_turns", sa.Integer(), nullable=True),
        sa.Column("meta", JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("parent_run_id", sa.Text(collation="C"), nullable=True),
        sa.Column("attempt", sa.Integer(), server_default=sa.text("0"), nullable=False, comment="Claims so far"),
        sa.Column(
            "losses",
            sa.Integer(),
            server_default=sa.text("0"),
            nullable=False,
            comment="Leases that ran out: workers that died or went silent with this run",
        ),
        sa.Column("fence", sa.BigInteger(), nullable=True, comment="Of the latest claim"),
        sa.Column("worker_id", sa.Text(collation="C"), nullable=True),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cancel_requested_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cancel_reason", sa.Text(), nullable=True, comment="cancel or interrupt"),
        sa.Column(
            "rang_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When its doorbell was last rung, as far as we know",
        ),
        sa.Column("turn_id", sa.Text(collation="C"), nullable=True),
        sa.Column(
            "merged_into", sa.Text(collation="C"), nullable=True, comment="The run whose turn absorbed this message"
        ),
        sa.Column("stop_reason", sa.Text(), nullable=True),
        sa.Column("result_text", sa.Text(), nullable=True),
        sa.Column("error_kind", sa.Text(), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("error_retryable", sa.Boolean(), nullable=True),
        sa.Column("final_event_id", sa.Text(), nullable=True, comment="<attempt>-<seq> of its last live event"),
        sa.Column("traceparent", sa.Text(), nullable=True, comment="W3C trace context of the request"),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column(
            "queued_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="Latest entry into the line",
        ),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True, comment="First claim"),
        sa.Column("first_token_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "(status = 'running') = (lease_expires_at IS NOT NULL)", name=op.f("ck_runs__running_has_lease")
        ),
        sa.CheckConstraint("on_busy IN ('enqueue', 'reject', 'interrupt', 'steer')", name=op.f("ck_runs__on_busy")),
        sa.CheckConstraint("queue IN ('interactive', 'background')", name=op.f("ck_runs__queue")),
        sa.CheckConstraint(
            "source IN ('api', 'trigger', 'task', 'agent', 'channel', 'work_order')", name=op.f("ck_runs__source")
        ),
        sa.CheckConstraint(
            "status IN ('queued', 'running', 'waiting', 'succeeded', 'failed', 'canceled', 'merged')",
            name=op.f("ck_runs__status"),
        ),
        sa.ForeignKeyConstraint(["thread_id"], ["threads.id"], name="fk_runs__thread_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
        comment="One run. See docs/run-protocol.md for every transition.",
        postgresql_with={"fillfactor": "70"},
    )
    op.create_index("ix_runs__doorbell", "runs", ["rang_at"], postgresql_where=sa.text("status = 'queued'"))
    op.create_index(
        "ix_runs__finished_at", "runs", ["finished_at"], postgresql_where=sa.text("finished_at IS NOT NULL")
    )
    op.create_index("ix_runs__lease", "runs", ["lease_expires_at"], postgresql_where=sa.text("status = 'running'"))
    op.create_index(
        "ix_runs__line",
        "runs",
        ["thread_id", sa.literal_column("(attempt > 0) DESC"), sa.literal_column("front DESC"), "seq"],
        postgresql_where=sa.text("status = 'queued'"),
    )
    op.create_index(
        "ix_runs__not_succeeded",
        "runs",
        ["tenant_id", "status", "id"],
        postgresql_where=sa.text("status IN ('failed', 'canceled', 'merged')"),
    )
    op.create_index(
        "ix_runs__open",
        "runs",
        ["tenant_id", "id"],
        postgresql_where=sa.text("status IN ('queued', 'running', 'waiting')"),
    )
    op.create_index("ix_runs__tenant_id_agent_id_id", "runs", ["tenant_id", "agent_id", "id"])
    op.create_index("ix_runs__tenant_id_id", "runs", ["tenant_id", "id"])
    op.create_index(
        "uq_runs__running_thread", "runs", ["thread_id"], unique=True, postgresql_where=sa.text("status = 'running'")
    )
    op.create_index("uq_runs__thread_id_seq", "runs", ["thread_id", "seq"], unique=True)

    op.create_table(
        "engine_sessions",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("thread_id", sa.Text(collation="C"), nullable=False),
        sa.Column(
            "parent_id", sa.Text(collation="C"), nullable=True, comment="Null where the entries are all there is"
        ),
        sa.Column("engine", sa.Text(), nullable=False),
        sa.Column("entries", JSONB(), nullable=False, comment="In the SDK's own words"),
        sa.Column("fingerprint", sa.Text(), nullable=False, comment="Of the ledger's messages that the session tells"),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["thread_id"], ["threads.id"], name="fk_engine_sessions__thread_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_engine_sessions"),
        comment="The transcript of an SDK that keeps its own, as one turn left it: what the turn added to its parent's.",
    )
    op.create_index("ix_engine_sessions__thread_id", "engine_sessions", ["thread_id"])

    op.create_table(
        "thread_heads",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("thread_id", sa.Text(collation="C"), nullable=False),
        sa.Column("turn_id", sa.Text(collation="C"), nullable=True),
        sa.Column("run_id", sa.Text(collation="C"), nullable=True),
        sa.Column("move", sa.Text(), server_default=sa.text("'turn'"), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("move IN ('turn', 'fork', 'compaction')", name=op.f("ck_thread_heads__move")),
        sa.ForeignKeyConstraint(["thread_id"], ["threads.id"], name="fk_thread_heads__thread_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_thread_heads"),
        comment="One move of a thread's head pointer.",
    )
    op.create_index("ix_thread_heads__thread_id_id", "thread_heads", ["thread_id", "id"])

    op.create_table(
        "turns",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("thread_id", sa.Text(collation="C"), nullable=False),
        sa.Column("run_id", sa.Text(collation="C"), nullable=True, comment="Null for a compaction"),
        sa.Column(
            "parent_turn_id",
            sa.Text(collation="C"),
            nullable=True,
            comment="In another thread where this thread was forked",
        ),
        sa.Column("depth", sa.Integer(), server_default=sa.text("0"), nullable=False, comment="Distance from the root"),
        sa.Column("type", sa.Text(), server_default=sa.text("'normal'"), nullable=False),
        sa.Column("status", sa.Text(), server_default=sa.text("'running'"), nullable=False),
        sa.Column("agent_id", sa.Text(collation="C"), nullable=False),
        sa.Column("agent_version", sa.Integer(), nullable=True),
        sa.Column("engine", sa.Text(), nullable=True),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("provider", sa.Text(), nullable=True),
        sa.Column("role", sa.Text(), nullable=True, comment="manager, worker or unified"),
        sa.Column("toolset_name", sa.Text(), nullable=True),
        sa.Column("tools_available", JSONB(), nullable=True),
        sa.Column("permissions_granted", JSONB(), nullable=True),
        sa.Column("permissions_used", JSONB(), nullable=True),
        sa.Column("source_event_id", sa.Text(), nullable=True),
        sa.Column("workspace_path", sa.Text(), nullable=True),
        sa.Column("steps", sa.Integer(), server_default=sa.text("0"), nullable=False, comment="Committed steps"),
        sa.Column(
            "context_tokens", sa.BigInteger(), nullable=True, comment="Of the last model call: the conversation's size"
        ),
        sa.Column("tool_call_count", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("cache_read_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("cache_write_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("reasoning_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "cost_usd",
            sa.Numeric(precision=18, scale=8),
            nullable=True,
            comment="Null where the price of the model is not known",
        ),
        sa.Column("stop_reason", sa.Text(), nullable=True),
        sa.Column("error_kind", sa.Text(), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("completed_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "status IN ('running', 'waiting', 'succeeded', 'failed', 'aborted')", name=op.f("ck_turns__status")
        ),
        sa.CheckConstraint("type IN ('normal', 'compaction')", name=op.f("ck_turns__type")),
        sa.ForeignKeyConstraint(["thread_id"], ["threads.id"], name="fk_turns__thread_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_turns"),
        comment="One executed run, child of the turn before it. Immutable once it is not running or waiting.",
        postgresql_with={"fillfactor": "80"},
    )
    op.create_index("ix_turns__parent_turn_id", "turns", ["parent_turn_id"])
    op.create_index("ix_turns__thread_id_depth", "turns", ["thread_id", "depth"])
    op.create_index("uq_turns__run_id", "turns", ["run_id"], unique=True)

    op.create_table(
        "compactions",
        sa.Column("turn_id", sa.Text(collation="C"), nullable=False),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("summarized_through_turn_id", sa.Text(collation="C"), nullable=False),
        sa.Column("first_kept_turn_id", sa.Text(collation="C"), nullable=True),
        sa.Column("turns_summarized", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("tokens_before", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("tokens_after", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("summary_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("summarization_input_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("summarization_output_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("duration_ms", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("trigger", sa.Text(), nullable=False, comment="context_limit or overflow_recovery"),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["turn_id"], ["turns.id"], name="fk_compactions__turn_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("turn_id", name="pk_compactions"),
        comment="What a compaction turn replaced, and what it cost.",
    )

    op.create_table(
        "effects",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("run_id", sa.Text(collation="C"), nullable=False),
        sa.Column("thread_id", sa.Text(collation="C"), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("status", sa.Text(), server_default=sa.text("'pending'"), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column(
            "due_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="Pending: not before. Running: its lease; then it is due again",
        ),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("done_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("kind IN ('embeddings', 'title')", name=op.f("ck_effects__kind")),
        sa.CheckConstraint("status IN ('pending', 'running', 'done', 'failed')", name=op.f("ck_effects__status")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_effects__run_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_effects"),
        comment="One piece of post-run work. A run's effects are done in the order of `position`.",
        postgresql_with={"fillfactor": "80"},
    )
    op.create_index(
        "ix_effects__due", "effects", ["due_at"], postgresql_where=sa.text("status IN ('pending', 'running')")
    )
    op.create_index("uq_effects__run_id_kind", "effects", ["run_id", "kind"], unique=True)

    op.create_table(
        "messages",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("thread_id", sa.Text(collation="C"), nullable=False),
        sa.Column("turn_id", sa.Text(collation="C"), nullable=False),
        sa.Column(
            "run_id", sa.Text(collation="C"), nullable=True, comment="For steering: the run whose message this was"
        ),
        sa.Column("seq", sa.Integer(), nullable=False, comment="Order within the turn; 0 is the query"),
        sa.Column("step", sa.Integer(), nullable=True, comment="The step that it belongs to; null for the query"),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("content", JSONB(), nullable=False),
        sa.Column(
            "event_id", sa.Text(), nullable=True, comment="<attempt>-<seq> of the live event that closed its step"
        ),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint(
            "kind IN ('query', 'response', 'tool_results', 'steering', 'summary')", name=op.f("ck_messages__kind")
        ),
        sa.ForeignKeyConstraint(["turn_id"], ["turns.id"], name="fk_messages__turn_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_messages"),
        comment="One message of a turn, its content blocks as they went over the wire.",
    )
    op.create_index("ix_messages__thread_id", "messages", ["thread_id"])
    op.create_index("uq_messages__turn_id_seq", "messages", ["turn_id", "seq"], unique=True)

    op.create_table(
        "run_waits",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("run_id", sa.Text(collation="C"), nullable=False),
        sa.Column(
            "tool_call_id",
            sa.Text(),
            nullable=False,
            comment="The model's id of the call whose result this wait writes",
        ),
        sa.Column("kind", sa.Text(), nullable=False, comment="user, agent, child, approval or timer"),
        sa.Column("payload", JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("status", sa.Text(), server_default=sa.text("'open'"), nullable=False),
        sa.Column("answer", JSONB(), nullable=True),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("resolved_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "status IN ('open', 'resolved', 'timed_out', 'canceled')", name=op.f("ck_run_waits__status")
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_run_waits__run_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_run_waits"),
        comment="What a waiting run waits for, and until when.",
    )
    op.create_index("ix_run_waits__due", "run_waits", ["due_at"], postgresql_where=sa.text("status = 'open'"))
    op.create_index("ix_run_waits__run_id", "run_waits", ["run_id"])

    op.create_table(
        "tool_calls",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("turn_id", sa.Text(collation="C"), nullable=False),
        sa.Column("call_id", sa.Text(), nullable=False, comment="The model's id of the call"),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("tool_name", sa.Text(), nullable=False),
        sa.Column("params", JSONB(), nullable=False),
        sa.Column("status", sa.Text(), server_default=sa.text("'pending'"), nullable=False),
        sa.Column("result", JSONB(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("spawned_run_id", sa.Text(collation="C"), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("completed_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "status IN ('pending', 'running', 'completed', 'failed', 'interrupted')", name=op.f("ck_tool_calls__status")
        ),
        sa.ForeignKeyConstraint(["turn_id"], ["turns.id"], name="fk_tool_calls__turn_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_tool_calls"),
        comment="One tool invocation: pending before it starts, its result once it ended.",
    )
    op.create_index("uq_tool_calls__turn_id_call_id", "tool_calls", ["turn_id", "call_id"], unique=True)

    op.create_table(
        "embeddings",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("agent_id", sa.Text(collation="C"), nullable=False),
        sa.Column("thread_id", sa.Text(collation="C"), nullable=False),
        sa.Column("message_id", sa.Text(collation="C"), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("dimensions", sa.Integer(), nullable=False),
        sa.Column("embedding", Vector(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["message_id"], ["messages.id"], name="fk_embeddings__message_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["thread_id"], ["threads.id"], name="fk_embeddings__thread_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_embeddings"),
        comment="The vector of one message.",
    )
    op.create_index(
        "ix_embeddings__hnsw_384",
        "embeddings",
        [sa.literal_column("(embedding::vector(384))").label("embedding_384")],
        postgresql_using="hnsw",
        postgresql_ops={"embedding_384": "vector_cosine_ops"},
        postgresql_where=sa.text("dimensions = 384"),
    )
    op.create_index("ix_embeddings__thread_id", "embeddings", ["thread_id"])
    op.create_index("uq_embeddings__message_id_model", "embeddings", ["message_id", "model"], unique=True)


def downgrade() -> None:
    # Indexes go with their tables. The extension stays: it may have been there before.
    for table in reversed(_TABLES):
        op.drop_table(table)
