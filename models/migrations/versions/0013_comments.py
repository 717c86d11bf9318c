"""Comments of tables and columns in the terms of the glossary. No data and no types change."""

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_TABLES = {
    "agent_versions": (
        "What an agent was. Immutable; a run names the version it used.",
        "One version of an agent's configuration. Immutable; a run records the version that it used.",
    ),
    "agents": (
        "An agent as it stands: the newest version's configuration, beside it for one-row reads.",
        "An agent with the configuration of its newest version, copied here for one-row reads.",
    ),
    "deliveries": (
        "Something to hand to the world outside, at least once.",
        "One item of the outbox or the inbox, delivered at least once.",
    ),
    "effects": (
        "One piece of post-run work. A run's effects are done in the order of `position`.",
        "One piece of post-run work. A run's effects are executed in the order of `position`.",
    ),
    "engine_sessions": (
        "The transcript of an SDK that keeps its own, as one turn left it: what the turn added to its parent's.",
        "What one turn added to the transcript of an SDK that keeps its own.",
    ),
    "message_texts": (
        "What was said in one message, for search by words.",
        "The text of one message, for search by words.",
    ),
    "run_waits": (
        "What a run waits for, or waited for, and until when. Of a tool call one at a time is open.",
        "What a run waits for, or waited for, and until when. A tool call has at most one open wait.",
    ),
    "sent_files": (
        "A file that an agent sent to people. In the ledger, since no worker's disk is another's.",
        "A file that an agent sent to people. In the ledger, since workers share no disk.",
    ),
    "switches": (
        "A pause: nothing new starts within its scope while the row stands.",
        "A pause: nothing new starts within its scope while the row exists.",
    ),
    "task_changes": ("What happened to a task, in order. Never changed.", "One change of a task. Never updated."),
    "task_resources": ("Something that a task works with.", "A URL or a file that a task works with."),
    "tasks": (
        "One task. Its id is a number of its tenant's own, which is never given out again.",
        "One task. Its id is a number within its tenant, never used again.",
    ),
    "tool_calls": (
        "One tool invocation: pending before it starts, its result once it ended.",
        "One tool call: pending before it starts, with a result after it ended.",
    ),
    "trigger_firings": (
        "What came of one slot of a trigger. Its uniqueness is what makes a slot fire once.",
        "The outcome of one occurrence of a trigger. Its unique index makes an occurrence fire once.",
    ),
    "triggers": (
        "When an agent starts by itself, and with which words.",
        "A schedule by which an agent is started with a prompt.",
    ),
    "upkeep_cursors": (
        "How far a slow pass over a tenant's rows has come. Who works on it holds it by its due time.",
        "Progress of a background pass over a tenant's rows. A worker leases it by moving its due time.",
    ),
    "usage": (
        "What was used: one row a run, written with its end, and one a compaction.",
        "Tokens and cost: one row per run, written when it ends, and one per compaction.",
    ),
    "webhooks": (
        "An address that wants to hear of things. Signed as Standard Webhooks.",
        "A URL that receives events, signed as Standard Webhooks.",
    ),
}
"""By table: the old and the new comment."""

_COLUMNS = {
    ("agents", "max_running"): ("Of spec", "Generated from spec"),
    ("agents", "max_cost_usd_per_day"): ("Of spec", "Generated from spec"),
    ("api_keys", "scopes"): (
        "See contracts.wire.Scope; read and write in one",
        "See contracts.http.keys.Scope; each permits reading and writing",
    ),
    ("compactions", "through_step"): (
        "The last step of the turn after it that the summary stands for, if any",
        "The last step of the next turn that the summary covers, if any",
    ),
    ("deliveries", "routed"): (
        "Of the inbox: whether there is a row for each channel that wants it",
        "For the inbox: whether each channel that receives it has a row",
    ),
    ("deliveries", "due_at"): (
        "Not before; while somebody sends it, the end of their lease",
        "Earliest attempt; during an attempt, the end of the sender's lease",
    ),
    ("deliveries", "webhook_id"): (
        "The address it goes to; null is the inbox",
        "The webhook that it is sent to, if any",
    ),
    ("deliveries", "response_status"): ("What the address answered last", "HTTP status of the latest answer"),
    ("effects", "due_at"): (
        "Pending: not before. Running: its lease; then it is due again",
        "Pending: earliest start. Running: end of its lease, after which it is due again",
    ),
    ("engine_sessions", "parent_id"): (
        "Null where the entries are all there is",
        "Null if the entries are the whole transcript",
    ),
    ("engine_sessions", "entries"): ("In the SDK's own words", "In the SDK's format"),
    ("engine_sessions", "fingerprint"): (
        "Of the ledger's messages that the session tells",
        "Of the ledger's messages that the session contains",
    ),
    ("memories", "agent_id"): ("Who saved it", "The agent that saved it"),
    ("message_texts", "words"): (
        "Words, and whose they are",
        "Words of the content, and marks of its tenant and agent",
    ),
    ("messages", "used"): (
        "Of a step's last message: what the turn has used by then",
        "Of a step's last message: the turn's usage so far",
    ),
    ("runs", "seq"): ("Place in the thread's line", "Position in the thread's queue"),
    ("runs", "front"): (
        "Goes before the line: it interrupted the run that was active",
        "Goes before the rest of the queue: it interrupted the active run",
    ),
    ("runs", "parent_run_id"): ("The run that asked for this one", "The run that started this one"),
    ("runs", "trigger_told"): (
        "Whether its trigger knows how it ended",
        "Whether its trigger has recorded how it ended",
    ),
    ("runs", "depth"): (
        "How many agents stand before this one",
        "Number of runs above it: its parent, the parent's parent, …",
    ),
    ("runs", "losses"): (
        "Leases that ran out: workers that died or went silent with this run",
        "Expired leases: workers that crashed or hung with this run",
    ),
    ("runs", "start_at"): (
        "Not before; while it is scheduled it is in no line",
        "Earliest start; a scheduled run is in no queue",
    ),
    ("runs", "rang_at"): (
        "When its doorbell was last rung, as far as we know",
        "When its doorbell was last rung, as far as is recorded",
    ),
    ("runs", "output"): (
        "With an output schema: the answer as a value that fulfils it",
        "With an output schema: the answer as a value that matches it",
    ),
    ("runs", "queued_at"): ("Latest entry into the line", "Latest entry into the queue"),
    ("secrets", "key_id"): ("Which master key it is encrypted with", "Id of the master key that encrypts it"),
    ("skills", "skill_md"): ("SKILL.md as it was given", "SKILL.md, unchanged"),
    ("task_changes", "revision"): ("The task's, after the change", "The task's revision after the change"),
    ("tasks", "outcome"): ("What came of it, or why it was canceled", "Its result, or why it was canceled"),
    ("tasks", "work_at"): (
        "When it is worked on next; null while nobody need",
        "When it is worked on next; null if it is not",
    ),
    ("tasks", "worked_revision"): (
        "Its revision when the last one began",
        "Its revision when the latest invocation began",
    ),
    ("tasks", "idle_invocations"): (
        "Invocations in a row that changed nothing",
        "Consecutive invocations that changed nothing",
    ),
    ("tasks", "parked_reason"): ("Why it is not worked on by itself", "Why the scheduler does not work on it"),
    ("tenants", "timezone"): ("IANA name; what its days and hours are", "IANA name; the zone of its days and hours"),
    ("tenants", "weight"): (
        "Its share of a busy fleet, beside others'",
        "Its share of a busy fleet, relative to other tenants",
    ),
    ("tenants", "max_running"): ("Runs at once", "Most runs at once"),
    ("tenants", "ending_at"): (
        "When an operator ended it; its rows are deleted since then",
        "When an operator ended it; from then on its rows are deleted",
    ),
    ("threads", "label"): (
        "A name for the pointer, unique while the thread lives",
        "A name for the thread, unique until the thread is deleted",
    ),
    ("threads", "fence"): (
        "Grows at every claim; a write that carries an older one is refused",
        "Raised at every claim; a write with an older fence is refused",
    ),
    ("threads", "next_seq"): ("Place in line of the next run", "Queue position of the next run"),
    ("threads", "purge_at"): (
        "When the rows of a deleted thread go; infinity while other threads go on from its turns",
        "When the rows of a deleted thread are purged; infinity while forks continue from its turns",
    ),
    ("trigger_firings", "scheduled_for"): ("The slot", "The planned time"),
    ("trigger_firings", "manual"): (
        "Somebody asked for it; it is no slot of the schedule",
        "Fired on request, not by the schedule",
    ),
    ("triggers", "timezone"): ("IANA name; what a cron line is meant in", "IANA name; the zone of a cron line"),
    ("triggers", "jitter_s"): (
        "Each slot fires up to so many seconds later, by chance of its own",
        "Each occurrence fires up to this many seconds later, at random",
    ),
    ("triggers", "catchup_s"): (
        "How late a slot may fire, in seconds; later it is skipped",
        "How late an occurrence may fire, in seconds; later it is skipped",
    ),
    ("triggers", "pause_after_failures"): (
        "Failed runs in a row after which it pauses; 0 is never",
        "Consecutive failed runs after which it pauses; 0 is never",
    ),
    ("triggers", "failures"): ("Failed runs in a row", "Consecutive failed runs"),
    ("triggers", "gate_seen"): ("What the gate saw when it fired last", "What the gate read at the latest firing"),
    ("triggers", "next_slot_at"): ("The next slot by its schedule", "The next occurrence by its schedule"),
    ("triggers", "next_fire_at"): (
        "The same with its jitter; null does not fire",
        "The same with its jitter; null if it does not fire",
    ),
    ("turns", "refused_blocks"): (
        "Notes for refused blocks, by fingerprint",
        "Notes that replace refused blocks, by fingerprint",
    ),
    ("upkeep_cursors", "variant"): (
        "What the pass is made with: the embedding model",
        "The embedding model that the pass uses",
    ),
    ("upkeep_cursors", "due_at"): (
        "When it is looked at next; while somebody works on it, a lease",
        "When it is worked on next; while a worker does, the end of its lease",
    ),
    ("upkeep_cursors", "worked_at"): ("When somebody last took it", "When a worker last took it"),
    ("webhooks", "kinds"): ("What it wants; empty is all", "Kinds of delivery that it receives; empty is all"),
    ("webhooks", "agent_id"): ("Only of this agent", "Receives only this agent's deliveries; null is every agent's"),
    ("webhooks", "failures"): ("Tries that failed in a row", "Consecutive failed attempts"),
    ("webhooks", "failing_since"): ("When the first of them did", "Time of the first of them"),
    ("webhooks", "rests_until"): ("Nothing is sent there before", "No attempt is made before this time"),
    ("webhooks", "secret"): ("Encrypted as secrets are", "Encrypted like the values of secrets"),
    ("webhooks", "key_id"): ("Which master key it is encrypted with", "Id of the master key that encrypts it"),
    ("webhooks", "previous_secret"): ("Signs too, until it expires", "Also signs, until it expires"),
}
"""By table and column: the old and the new comment."""


def upgrade() -> None:
    for table, (old, new) in _TABLES.items():
        op.create_table_comment(table, new, existing_comment=old)
    for (table, column), (old, new) in _COLUMNS.items():
        op.alter_column(table, column, comment=new, existing_comment=old)


def downgrade() -> None:
    for table, (old, new) in _TABLES.items():
        op.create_table_comment(table, old, existing_comment=new)
    for (table, column), (old, new) in _COLUMNS.items():
        op.alter_column(table, column, comment=old, existing_comment=new)
