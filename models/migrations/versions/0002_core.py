"""The tables of the Core: waits, tasks, notes, files, skills, secrets, triggers."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB, TSVECTOR

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_TABLES = (
    "message_texts",
    "notes",
    "secrets",
    "sent_files",
    "skills",
    "tasks",
    "triggers",
    "skill_files",
    "task_changes",
    "task_resources",
    "task_steps",
)
"""Those that are new, in the order in which they refer to each other."""

_CALL_STATUS = "status IN ('pending', 'running', 'completed', 'failed', 'interrupted'{more})"


_MESSAGE_WORDS = """\
array_to_tsvector(ARRAY['@' || tenant_id, '@' || tenant_id || '/' || agent_id]) || to_tsvector('simple', content)"""


def upgrade() -> None:
    op.create_table(
        "message_texts",
        sa.Column("message_id", sa.Text(collation="C"), nullable=False),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("agent_id", sa.Text(collation="C"), nullable=False),
        sa.Column("thread_id", sa.Text(collation="C"), nullable=False),
        sa.Column("role", sa.Text(), nullable=False, comment="user or assistant"),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("said_at", sa.DateTime(timezone=True), nullable=False, comment="When the message was written"),
        sa.Column(
            "words",
            TSVECTOR(),
            sa.Computed(_MESSAGE_WORDS, persisted=True),
            nullable=False,
            comment="Words, and whose they are",
        ),
        sa.ForeignKeyConstraint(
            ["message_id"], ["messages.id"], name="fk_message_texts__message_id", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["thread_id"], ["threads.id"], name="fk_message_texts__thread_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("message_id", name="pk_message_texts"),
        comment="What was said in one message, for search by words.",
    )
    op.create_index("ix_message_texts__thread_id", "message_texts", ["thread_id"])
    op.create_index(
        "ix_message_texts__words",
        "message_texts",
        ["words"],
        postgresql_using="gin",
        postgresql_with={"fastupdate": "off"},
    )
    op.add_column(
        "embeddings",
        sa.Column(
            "said_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When the message was written",
        ),
    )
    op.execute("UPDATE embeddings e SET said_at = m.created_at FROM messages m WHERE m.id = e.message_id")
    op.create_index("ix_embeddings__tenant_id_agent_id", "embeddings", ["tenant_id", "agent_id"])

    op.create_table(
        "notes",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("agent_id", sa.Text(collation="C"), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column(
            "shared", sa.Boolean(), server_default=sa.text("false"), nullable=False, comment="Whether people see it"
        ),
        sa.Column("pinned", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_notes__tenant_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_notes"),
        comment="A markdown document owned by an agent.",
    )
    op.create_index("ix_notes__tenant_id_agent_id_id", "notes", ["tenant_id", "agent_id", "id"])
    op.create_index("ix_notes__tenant_id_id", "notes", ["tenant_id", "id"])

    op.create_table(
        "secrets",
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("ciphertext", sa.LargeBinary(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False, comment="Which master key it is encrypted with"),
        sa.Column("description", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("updated_by", sa.Text(), nullable=False, comment="person, or the agent's id"),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_secrets__tenant_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("tenant_id", "name", name="pk_secrets"),
        comment="A named secret, encrypted with a key that is not in the database.",
    )

    op.create_table(
        "sent_files",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("agent_id", sa.Text(collation="C"), nullable=False),
        sa.Column("thread_id", sa.Text(collation="C"), nullable=False),
        sa.Column("run_id", sa.Text(collation="C"), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("media_type", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("caption", sa.Text(), nullable=True),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_sent_files__tenant_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_sent_files"),
        comment="A file that an agent sent to people. In the ledger, since no worker's disk is another's.",
    )
    op.create_index("ix_sent_files__run_id", "sent_files", ["run_id"])
    op.create_index("ix_sent_files__tenant_id_id", "sent_files", ["tenant_id", "id"])
    op.create_index("ix_sent_files__tenant_id_agent_id_id", "sent_files", ["tenant_id", "agent_id", "id"])
    op.create_index("ix_sent_files__tenant_id_thread_id_id", "sent_files", ["tenant_id", "thread_id", "id"])

    op.create_table(
        "skills",
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("skill_md", sa.Text(), nullable=False, comment="SKILL.md as it was given"),
        sa.Column("body", sa.Text(), nullable=False, comment="The same without its front matter"),
        sa.Column(
            "front_matter",
            JSONB(),
            server_default=sa.text("'{}'"),
            nullable=False,
            comment="contracts.skills.SkillFront",
        ),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_skills__tenant_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("tenant_id", "name", name="pk_skills"),
        comment="A skill of the tenant's library: instructions that an agent reads when it needs them.",
    )

    op.create_table(
        "tasks",
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("owner_agent_id", sa.Text(collation="C"), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False, comment="person, or the agent's id"),
        sa.Column("status", sa.Text(), server_default=sa.text("'draft'"), nullable=False),
        sa.Column("revision", sa.Integer(), server_default=sa.text("0"), nullable=False, comment="Counts its changes"),
        sa.Column(
            "thread_id",
            sa.Text(collation="C"),
            nullable=True,
            comment="Its dedicated thread, made when it is activated",
        ),
        sa.Column("parent_task_id", sa.Integer(), nullable=True),
        sa.Column("parent_step_id", sa.Text(collation="C"), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True, comment="What came of it, or why it was canceled"),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("status IN ('draft', 'active', 'done', 'canceled')", name=op.f("ck_tasks__status")),
        sa.CheckConstraint(
            "(parent_task_id IS NULL) = (parent_step_id IS NULL)", name=op.f("ck_tasks__parent_is_whole")
        ),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_tasks__tenant_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("tenant_id", "id", name="pk_tasks"),
        comment="One task. Its id is a number of its tenant's own, which is never given out again.",
    )
    op.create_index("ix_tasks__tenant_id_owner_agent_id_id", "tasks", ["tenant_id", "owner_agent_id", "id"])
    op.create_index("ix_tasks__tenant_id_status_id", "tasks", ["tenant_id", "status", "id"])
    op.create_index(
        "uq_tasks__parent_step_id",
        "tasks",
        ["parent_step_id"],
        unique=True,
        postgresql_where=sa.text("parent_step_id IS NOT NULL AND status <> 'canceled'"),
    )
    op.create_index(
        "ix_tasks__tenant_id_parent_task_id_id",
        "tasks",
        ["tenant_id", "parent_task_id", "id"],
        postgresql_where=sa.text("parent_task_id IS NOT NULL"),
    )

    op.create_table(
        "triggers",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("agent_id", sa.Text(collation="C"), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column(
            "schedule", sa.Text(), nullable=False, comment="A cron line, a time in RFC 3339, or a period in seconds"
        ),
        sa.Column(
            "timezone",
            sa.Text(),
            server_default=sa.text("'UTC'"),
            nullable=False,
            comment="IANA name; what a cron line is meant in",
        ),
        sa.Column("prompt", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=True),
        sa.Column("enabled", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column(
            "thread_id",
            sa.Text(collation="C"),
            nullable=True,
            comment="One fixed thread; null makes one for each firing",
        ),
        sa.Column("starts_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ends_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_by", sa.Text(), nullable=False, comment="person, or the agent's id"),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("kind IN ('cron', 'at', 'every')", name=op.f("ck_triggers__kind")),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_triggers__tenant_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_triggers"),
        comment="When an agent starts by itself, and with which words.",
    )
    op.create_index(
        "ix_triggers__tenant_id_agent_id_id",
        "triggers",
        ["tenant_id", "agent_id", "id"],
        postgresql_where=sa.text("deleted_at IS NULL"),
    )
    op.create_index(
        "ix_triggers__tenant_id_id", "triggers", ["tenant_id", "id"], postgresql_where=sa.text("deleted_at IS NULL")
    )

    op.create_table(
        "skill_files",
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("skill_name", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False, comment="Relative to the skill's directory, with slashes"),
        sa.Column("executable", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id", "skill_name"],
            ["skills.tenant_id", "skills.name"],
            name="fk_skill_files__tenant_id_skill_name",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("tenant_id", "skill_name", "path", name="pk_skill_files"),
        comment="A file beside a SKILL.md.",
    )

    op.create_table(
        "task_changes",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("task_id", sa.Integer(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False, comment="The task's, after the change"),
        sa.Column("actor", sa.Text(), nullable=False, comment="person, or the agent's id"),
        sa.Column("run_id", sa.Text(collation="C"), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("details", JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id", "task_id"],
            ["tasks.tenant_id", "tasks.id"],
            name="fk_task_changes__tenant_id_task_id",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_task_changes"),
        comment="What happened to a task, in order. Never changed.",
    )
    op.create_index(
        "uq_task_changes__task_id_revision", "task_changes", ["tenant_id", "task_id", "revision"], unique=True
    )

    op.create_table(
        "task_resources",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("task_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False, comment="The URL, or the path"),
        sa.Column("title", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("kind IN ('url', 'file')", name=op.f("ck_task_resources__kind")),
        sa.ForeignKeyConstraint(
            ["tenant_id", "task_id"],
            ["tasks.tenant_id", "tasks.id"],
            name="fk_task_resources__tenant_id_task_id",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_task_resources"),
        comment="Something that a task works with.",
    )
    op.create_index(
        "uq_task_resources__task_id_value", "task_resources", ["tenant_id", "task_id", "value"], unique=True
    )

    op.create_table(
        "task_steps",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("task_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("details", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("done", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("subtask_id", sa.Integer(), nullable=True, comment="The task that does this step"),
        sa.CheckConstraint("char_length(title) BETWEEN 1 AND 60", name=op.f("ck_task_steps__title")),
        sa.ForeignKeyConstraint(
            ["tenant_id", "task_id"],
            ["tasks.tenant_id", "tasks.id"],
            name="fk_task_steps__tenant_id_task_id",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_task_steps"),
        comment="One step of a task's plan.",
    )
    op.create_index("ix_task_steps__tenant_id_task_id_position", "task_steps", ["tenant_id", "task_id", "position"])

    # Nothing wrote this table before.
    op.drop_table("run_waits")
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
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("request", JSONB(), nullable=False, comment="contracts.waits.WaitRequest"),
        sa.Column("child_run_id", sa.Text(collation="C"), nullable=True, comment="The run whose end is the answer"),
        sa.Column("status", sa.Text(), server_default=sa.text("'open'"), nullable=False),
        sa.Column("answer", JSONB(), nullable=True),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("resolved_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("kind IN ('user', 'approval', 'agent', 'timer')", name=op.f("ck_run_waits__kind")),
        sa.CheckConstraint(
            "status IN ('open', 'resolved', 'timed_out', 'canceled')", name=op.f("ck_run_waits__status")
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_run_waits__run_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_run_waits"),
        comment="What a waiting run waits for, and until when. One row a tool call.",
    )
    op.create_index("ix_run_waits__due", "run_waits", ["due_at"], postgresql_where=sa.text("status = 'open'"))
    op.create_index("ix_run_waits__child", "run_waits", ["child_run_id"], postgresql_where=sa.text("status = 'open'"))
    op.create_index(
        "ix_run_waits__tenant_open", "run_waits", ["tenant_id", "id"], postgresql_where=sa.text("status = 'open'")
    )
    op.create_index("uq_run_waits__run_id_tool_call_id", "run_waits", ["run_id", "tool_call_id"], unique=True)

    op.drop_constraint("ck_tool_calls__status", "tool_calls")
    op.create_check_constraint(
        op.f("ck_tool_calls__status"), "tool_calls", _CALL_STATUS.format(more=", 'deferred', 'approved'")
    )

    op.add_column("deliveries", sa.Column("agent_id", sa.Text(collation="C"), nullable=True))
    op.add_column("deliveries", sa.Column("thread_id", sa.Text(collation="C"), nullable=True))
    op.create_check_constraint(op.f("ck_deliveries__kind"), "deliveries", "kind IN ('notification', 'file', 'note')")
    op.create_index("ix_deliveries__tenant_id_agent_id_id", "deliveries", ["tenant_id", "agent_id", "id"])
    op.create_index("ix_deliveries__run_id", "deliveries", ["run_id"])
    op.add_column(
        "runs",
        sa.Column(
            "depth",
            sa.Integer(),
            server_default=sa.text("0"),
            nullable=False,
            comment="How many agents stand before this one",
        ),
    )
    op.add_column(
        "runs",
        sa.Column(
            "limit_reached", sa.Text(), nullable=True, comment="turns, tokens or cost: the bound that ended the turn"
        ),
    )
    op.add_column(
        "runs",
        sa.Column(
            "output", JSONB(), nullable=True, comment="With an output schema: the answer as a value that fulfils it"
        ),
    )
    op.alter_column("runs", "parent_run_id", comment="The run that asked for this one")
    op.create_index(
        "ix_runs__stuck",
        "runs",
        ["id"],
        postgresql_where=sa.text("status = 'waiting' AND cancel_requested_at IS NOT NULL"),
    )
    op.add_column(
        "tenants",
        sa.Column(
            "next_task_id",
            sa.Integer(),
            server_default=sa.text("1"),
            nullable=False,
            comment="The number of the next task",
        ),
    )
    op.add_column(
        "threads", sa.Column("task_id", sa.Integer(), nullable=True, comment="The task that the thread is dedicated to")
    )
    op.alter_column("api_keys", "scopes", comment="See contracts.wire.Scope; read and write in one")
    op.execute("UPDATE agent_versions SET created_by = 'person' WHERE created_by = 'api'")
    op.alter_column(
        "agent_versions",
        "created_by",
        server_default=sa.text("'person'"),
        comment="person, seed, or the id of an agent",
    )
    op.create_index(
        "uq_threads__tenant_id_task_id",
        "threads",
        ["tenant_id", "task_id"],
        unique=True,
        postgresql_where=sa.text("task_id IS NOT NULL AND deleted_at IS NULL"),
    )


def downgrade() -> None:
    op.alter_column(
        "agent_versions",
        "created_by",
        server_default=sa.text("'api'"),
        comment="api, seed, or the agent that changed itself",
    )
    op.execute("UPDATE agent_versions SET created_by = 'api' WHERE created_by = 'person'")
    op.drop_index("ix_embeddings__tenant_id_agent_id", "embeddings")
    op.drop_column("embeddings", "said_at")
    op.alter_column("api_keys", "scopes", comment="runs, agents, keys, operator; read and write in one")
    op.drop_column("threads", "task_id")
    op.drop_column("tenants", "next_task_id")
    op.drop_index("ix_runs__stuck", "runs")
    op.alter_column("runs", "parent_run_id", comment=None)
    for column in ("output", "limit_reached", "depth"):
        op.drop_column("runs", column)
    for index in ("ix_deliveries__run_id", "ix_deliveries__tenant_id_agent_id_id"):
        op.drop_index(index, "deliveries")
    op.drop_constraint("ck_deliveries__kind", "deliveries")
    for column in ("thread_id", "agent_id"):
        op.drop_column("deliveries", column)

    # A run that waits cannot wait in the schema before this one: its calls are as those of a worker that died.
    op.execute("UPDATE tool_calls SET status = 'running' WHERE status IN ('deferred', 'approved')")
    op.drop_constraint("ck_tool_calls__status", "tool_calls")
    op.create_check_constraint(op.f("ck_tool_calls__status"), "tool_calls", _CALL_STATUS.format(more=""))
    op.drop_table("run_waits")
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

    for table in reversed(_TABLES):
        op.drop_table(table)
