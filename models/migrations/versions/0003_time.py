"""Time: firings of triggers, work on tasks, webhooks, fair shares."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_COLUMNS = {
    "triggers": (
        "next_fire_at",
        "next_slot_at",
        "gate_seen",
        "gate",
        "paused_reason",
        "failures",
        "pause_after_failures",
        "max_cost_usd_per_day",
        "max_runs_per_day",
        "catchup",
        "catchup_s",
        "overlap",
        "jitter_s",
    ),
    "agents": ("max_cost_usd_per_day", "max_running"),
    "tenants": ("max_cost_usd_per_day", "max_running", "weight", "work_every_s", "work_until", "work_from", "timezone"),
    "tasks": ("parked_reason", "idle_invocations", "worked_revision", "working_run_id", "work_at"),
    "runs": ("priority", "trigger_told", "trigger_id"),
    "threads": ("trimmed_at", "purge_at"),
    "deliveries": ("response_status", "webhook_id", "routed"),
}
"""Those that are new."""


def _replace_words(table: str, column: str, words: str) -> None:
    """Give a column another vocabulary."""
    name = op.f(f"ck_{table}__{column}")
    op.drop_constraint(name, table)
    op.create_check_constraint(name, table, f"{column} IN ({words})")


def upgrade() -> None:
    op.create_table(
        "webhooks",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column(
            "kinds",
            ARRAY(sa.Text()),
            server_default=sa.text("'{}'"),
            nullable=False,
            comment="What it wants; empty is all",
        ),
        sa.Column("agent_id", sa.Text(collation="C"), nullable=True, comment="Only of this agent"),
        sa.Column("enabled", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("disabled_reason", sa.Text(), nullable=True),
        sa.Column(
            "failures",
            sa.Integer(),
            server_default=sa.text("0"),
            nullable=False,
            comment="Tries that failed in a row",
        ),
        sa.Column("failing_since", sa.DateTime(timezone=True), nullable=True, comment="When the first of them did"),
        sa.Column("rests_until", sa.DateTime(timezone=True), nullable=True, comment="Nothing is sent there before"),
        sa.Column("secret", sa.LargeBinary(), nullable=False, comment="Encrypted as secrets are"),
        sa.Column("key_id", sa.Text(), nullable=False, comment="Which master key it is encrypted with"),
        sa.Column("previous_secret", sa.LargeBinary(), nullable=True, comment="Signs too, until it expires"),
        sa.Column("previous_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_webhooks__tenant_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_webhooks"),
        comment="An address that wants to hear of things. Signed as Standard Webhooks.",
    )
    op.create_index("ix_webhooks__tenant_id_id", "webhooks", ["tenant_id", "id"])

    op.create_table(
        "trigger_firings",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("trigger_id", sa.Text(collation="C"), nullable=False),
        sa.Column("scheduled_for", sa.DateTime(timezone=True), nullable=False, comment="The slot"),
        sa.Column("fired_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("run_id", sa.Text(collation="C"), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("skip_reason", sa.Text(), nullable=True),
        sa.Column("detail", sa.Text(), nullable=True, comment="The reason in words"),
        sa.Column(
            "manual",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
            comment="Somebody asked for it; it is no slot of the schedule",
        ),
        sa.CheckConstraint("outcome IN ('fired', 'skipped')", name=op.f("ck_trigger_firings__outcome")),
        sa.ForeignKeyConstraint(
            ["trigger_id"], ["triggers.id"], name="fk_trigger_firings__trigger_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_trigger_firings"),
        comment="What came of one slot of a trigger. Its uniqueness is what makes a slot fire once.",
    )
    op.create_index(
        "ix_trigger_firings__run_id", "trigger_firings", ["run_id"], postgresql_where=sa.text("run_id IS NOT NULL")
    )
    op.create_index("uq_trigger_firings__slot", "trigger_firings", ["trigger_id", "scheduled_for"], unique=True)
    op.add_column(
        "deliveries",
        sa.Column(
            "webhook_id", sa.Text(collation="C"), nullable=True, comment="The address it goes to; null is the inbox"
        ),
    )
    op.add_column(
        "deliveries",
        sa.Column("response_status", sa.Integer(), nullable=True, comment="What the address answered last"),
    )
    # What was in the inbox before is nobody's news.
    routed = "Of the inbox: whether there is a row for each channel that wants it"
    op.add_column(
        "deliveries",
        sa.Column("routed", sa.Boolean(), server_default=sa.text("true"), nullable=False, comment=routed),
    )
    op.alter_column("deliveries", "routed", server_default=sa.text("false"))
    op.alter_column(
        "deliveries", "target", comment="user is the inbox, else the id of a webhook or the name of a channel"
    )
    op.alter_column("deliveries", "due_at", comment="Not before; while somebody sends it, the end of their lease")
    op.drop_index("ix_deliveries__due", "deliveries")
    op.drop_index("ix_deliveries__tenant_id_id", "deliveries")
    op.create_index(
        "ix_deliveries__due", "deliveries", ["target", "due_at"], postgresql_where=sa.text("status = 'pending'")
    )
    op.create_index(
        "ix_deliveries__unrouted", "deliveries", ["id"], postgresql_where=sa.text("target = 'user' AND NOT routed")
    )
    op.create_index(
        "uq_deliveries__run_end",
        "deliveries",
        ["run_id", "target"],
        unique=True,
        postgresql_where=sa.text("kind = 'run_completed'"),
    )
    op.create_index("ix_deliveries__tenant_id_target_id", "deliveries", ["tenant_id", "target", "id"])
    _replace_words("deliveries", "kind", "'notification', 'file', 'note', 'run_completed', 'test'")
    _replace_words("effects", "kind", "'delivery', 'embeddings', 'title'")
    op.add_column(
        "runs", sa.Column("trigger_id", sa.Text(collation="C"), nullable=True, comment="The trigger that fired it")
    )
    op.add_column(
        "runs",
        sa.Column(
            "trigger_told",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
            comment="Whether its trigger knows how it ended",
        ),
    )
    op.add_column(
        "runs",
        sa.Column(
            "priority",
            sa.Integer(),
            server_default=sa.text("0"),
            nullable=False,
            comment="Higher goes first among the runs of its tenant",
        ),
    )
    op.create_index(
        "ix_runs__fair",
        "runs",
        ["queue", "tenant_id", "agent_id", sa.literal_column("priority DESC"), "queued_at"],
        postgresql_where=sa.text("status = 'queued'"),
    )
    op.create_index(
        "ix_runs__running_of", "runs", ["tenant_id", "agent_id"], postgresql_where=sa.text("status = 'running'")
    )
    op.create_index(
        "ix_runs__trigger", "runs", ["trigger_id", "created_at"], postgresql_where=sa.text("trigger_id IS NOT NULL")
    )
    op.create_index(
        "ix_runs__trigger_open",
        "runs",
        ["trigger_id"],
        postgresql_where=sa.text("trigger_id IS NOT NULL AND status IN ('queued', 'running', 'waiting')"),
    )
    op.create_index(
        "ix_runs__trigger_ended",
        "runs",
        ["finished_at"],
        postgresql_where=sa.text(
            "trigger_id IS NOT NULL AND NOT trigger_told AND status NOT IN ('queued', 'running', 'waiting')"
        ),
    )
    op.add_column(
        "tasks",
        sa.Column(
            "work_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="When it is worked on next; null while nobody need",
        ),
    )
    op.add_column(
        "tasks",
        sa.Column("working_run_id", sa.Text(collation="C"), nullable=True, comment="The invocation that is in flight"),
    )
    op.add_column(
        "tasks",
        sa.Column("worked_revision", sa.Integer(), nullable=True, comment="Its revision when the last one began"),
    )
    op.add_column(
        "tasks",
        sa.Column(
            "idle_invocations",
            sa.Integer(),
            server_default=sa.text("0"),
            nullable=False,
            comment="Invocations in a row that changed nothing",
        ),
    )
    op.add_column(
        "tasks", sa.Column("parked_reason", sa.Text(), nullable=True, comment="Why it is not worked on by itself")
    )
    op.create_index(
        "ix_tasks__work",
        "tasks",
        ["tenant_id", "work_at"],
        postgresql_where=sa.text("work_at IS NOT NULL AND working_run_id IS NULL"),
    )
    op.create_index(
        "ix_tasks__working",
        "tasks",
        ["working_run_id"],
        postgresql_where=sa.text("working_run_id IS NOT NULL"),
    )
    op.execute("UPDATE tasks SET work_at = now() WHERE status = 'active'")
    op.add_column(
        "tenants",
        sa.Column(
            "timezone",
            sa.Text(),
            server_default=sa.text("'UTC'"),
            nullable=False,
            comment="IANA name; what its days and hours are",
        ),
    )
    op.create_check_constraint(
        op.f("ck_tenants__timezone_is_known"), "tenants", "timezone(timezone, timestamp '2000-01-01') IS NOT NULL"
    )
    op.add_column(
        "tenants",
        sa.Column(
            "work_from",
            sa.Integer(),
            server_default=sa.text("6"),
            nullable=False,
            comment="First hour of the day at which tasks are worked on",
        ),
    )
    op.add_column(
        "tenants",
        sa.Column(
            "work_until",
            sa.Integer(),
            server_default=sa.text("22"),
            nullable=False,
            comment="The hour at which that ends",
        ),
    )
    op.add_column(
        "tenants",
        sa.Column(
            "work_every_s",
            sa.Integer(),
            server_default=sa.text("3600"),
            nullable=False,
            comment="How often a task is worked on",
        ),
    )
    op.add_column(
        "tenants",
        sa.Column(
            "weight",
            sa.Integer(),
            server_default=sa.text("1"),
            nullable=False,
            comment="Its share of a busy fleet, beside others'",
        ),
    )
    op.add_column(
        "agents",
        sa.Column(
            "max_running",
            sa.Integer(),
            sa.Computed("(spec ->> 'max_running')::integer", persisted=True),
            comment="Of spec",
        ),
    )
    op.add_column(
        "agents",
        sa.Column(
            "max_cost_usd_per_day",
            sa.Numeric(precision=18, scale=8),
            sa.Computed("(spec ->> 'max_cost_usd_per_day')::numeric", persisted=True),
            comment="Of spec",
        ),
    )
    op.add_column("tenants", sa.Column("max_running", sa.Integer(), nullable=True, comment="Runs at once"))
    op.add_column("tenants", sa.Column("max_cost_usd_per_day", sa.Numeric(precision=18, scale=8), nullable=True))
    op.add_column(
        "triggers",
        sa.Column(
            "jitter_s",
            sa.Integer(),
            server_default=sa.text("0"),
            nullable=False,
            comment="Each slot fires up to so many seconds later, by chance of its own",
        ),
    )
    op.add_column("triggers", sa.Column("overlap", sa.Text(), server_default=sa.text("'skip'"), nullable=False))
    op.add_column(
        "triggers",
        sa.Column(
            "catchup_s",
            sa.Integer(),
            server_default=sa.text("3600"),
            nullable=False,
            comment="How late a slot may fire, in seconds; later it is skipped",
        ),
    )
    op.add_column("triggers", sa.Column("catchup", sa.Text(), server_default=sa.text("'once'"), nullable=False))
    op.add_column("triggers", sa.Column("max_runs_per_day", sa.Integer(), nullable=True))
    op.add_column("triggers", sa.Column("max_cost_usd_per_day", sa.Numeric(precision=18, scale=8), nullable=True))
    op.add_column(
        "triggers",
        sa.Column(
            "pause_after_failures",
            sa.Integer(),
            server_default=sa.text("5"),
            nullable=False,
            comment="Failed runs in a row after which it pauses; 0 is never",
        ),
    )
    op.add_column(
        "triggers",
        sa.Column(
            "failures", sa.Integer(), server_default=sa.text("0"), nullable=False, comment="Failed runs in a row"
        ),
    )
    op.add_column(
        "triggers",
        sa.Column("paused_reason", sa.Text(), nullable=True, comment="Why it does not fire though it is enabled"),
    )
    op.add_column("triggers", sa.Column("gate", JSONB(), nullable=True, comment="A condition that costs no model call"))
    op.add_column(
        "triggers", sa.Column("gate_seen", sa.Text(), nullable=True, comment="What the gate saw when it fired last")
    )
    op.add_column(
        "triggers",
        sa.Column("next_slot_at", sa.DateTime(timezone=True), nullable=True, comment="The next slot by its schedule"),
    )
    op.add_column(
        "triggers",
        sa.Column(
            "next_fire_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="The same with its jitter; null does not fire",
        ),
    )
    op.create_index(
        "ix_triggers__due", "triggers", ["next_fire_at"], postgresql_where=sa.text("next_fire_at IS NOT NULL")
    )
    op.create_check_constraint(op.f("ck_triggers__overlap"), "triggers", "overlap IN ('skip', 'queue', 'cancel_other')")
    op.create_check_constraint(op.f("ck_triggers__catchup"), "triggers", "catchup IN ('once', 'each')")
    op.execute("ALTER TABLE triggers SET (fillfactor = 70)")
    _add_upkeep()


def _add_upkeep() -> None:
    op.create_table(
        "upkeep_cursors",
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("work", sa.Text(), nullable=False, comment="backfill or threads"),
        sa.Column(
            "target",
            sa.Text(collation="C"),
            nullable=False,
            comment="The agent whose threads; empty for the backfill",
        ),
        sa.Column(
            "variant",
            sa.Text(),
            server_default=sa.text("''"),
            nullable=False,
            comment="What the pass is made with: the embedding model",
        ),
        sa.Column(
            "passed_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="All rows up to here are done; null is from the beginning",
        ),
        sa.Column("passed_id", sa.Text(collation="C"), nullable=True, comment="The last of them"),
        sa.Column(
            "behind",
            sa.Boolean(),
            server_default=sa.text("true"),
            nullable=False,
            comment="Whether there is more to do now",
        ),
        sa.Column(
            "due_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it is looked at next; while somebody works on it, a lease",
        ),
        sa.Column(
            "worked_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When somebody last took it",
        ),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_upkeep_cursors__tenant_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("tenant_id", "work", "target", name="pk_upkeep_cursors"),
        comment="How far a slow pass over a tenant's rows has come. Who works on it holds it by its due time.",
    )
    op.create_index("ix_upkeep_cursors__work_due_at", "upkeep_cursors", ["work", "due_at"])
    op.add_column(
        "threads",
        sa.Column(
            "purge_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="When the rows of a deleted thread go; infinity while other threads go on from its turns",
        ),
    )
    op.add_column(
        "threads",
        sa.Column(
            "trimmed_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="When all but its latest turn was last deleted, by policy",
        ),
    )
    for name, table, columns, where in (
        ("ix_threads__deleted", "threads", ["deleted_at"], "deleted_at IS NOT NULL AND purge_at IS NULL"),
        ("ix_threads__purge", "threads", ["purge_at"], "purge_at IS NOT NULL"),
        ("ix_threads__forked_from", "threads", ["forked_from_turn_id"], "forked_from_turn_id IS NOT NULL"),
        ("ix_effects__over", "effects", ["status", "done_at"], "done_at IS NOT NULL"),
        ("ix_deliveries__over", "deliveries", ["created_at"], "status IN ('delivered', 'failed')"),
        ("ix_deliveries__inbox", "deliveries", ["created_at"], "target = 'user'"),
        ("ix_triggers__thread_id", "triggers", ["thread_id"], "thread_id IS NOT NULL AND deleted_at IS NULL"),
        ("ix_agents__retention", "agents", ["tenant_id", "id"], "jsonb_typeof(spec -> 'retention') = 'object'"),
    ):
        op.create_index(name, table, columns, postgresql_where=sa.text(where))
    op.create_index("ix_trigger_firings__fired_at", "trigger_firings", ["fired_at"])


def downgrade() -> None:
    # Indexes and constraints go with their columns.
    op.execute("ALTER TABLE triggers RESET (fillfactor)")
    op.drop_index("ix_runs__running_of", "runs")
    for name, table in (
        ("ix_threads__forked_from", "threads"),
        ("ix_effects__over", "effects"),
        ("ix_deliveries__over", "deliveries"),
        ("ix_deliveries__inbox", "deliveries"),
        ("ix_triggers__thread_id", "triggers"),
        ("ix_agents__retention", "agents"),
    ):
        op.drop_index(name, table)
    op.execute("DELETE FROM effects WHERE kind = 'delivery'")
    op.execute("DELETE FROM deliveries WHERE target <> 'user'")
    _replace_words("effects", "kind", "'embeddings', 'title'")
    _replace_words("deliveries", "kind", "'notification', 'file', 'note'")
    for index in ("ix_deliveries__due", "ix_deliveries__tenant_id_target_id", "uq_deliveries__run_end"):
        op.drop_index(index, "deliveries")
    op.create_index("ix_deliveries__due", "deliveries", ["due_at"], postgresql_where=sa.text("status = 'pending'"))
    op.create_index("ix_deliveries__tenant_id_id", "deliveries", ["tenant_id", "id"])
    for column in ("target", "due_at"):
        op.alter_column("deliveries", column, comment=None)
    for table, columns in _COLUMNS.items():
        for column in columns:
            op.drop_column(table, column)
    for table in ("upkeep_cursors", "trigger_firings", "webhooks"):
        op.drop_table(table)
