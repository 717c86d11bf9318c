"""The closed vocabularies: states, queues, kinds. Each is defined here and nowhere else.

Python takes the types, SQL the lists (`sql_list`), and the tables their CHECK constraints. A new word is one line here
and one line of a migration.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal, get_args

# Engines

EngineName = Literal["anthropic", "claude_agent", "code", "codex", "gemini", "openai", "scripted"]
"""Engines that a worker may have, depending on what is installed, and on its settings and environment."""
ENGINE_NAMES: Final[tuple[str, ...]] = get_args(EngineName)

# Runs

DueRunStatus = Literal["queued", "running", "waiting"]
"""What makes a thread, agent, trigger or task busy. A run that is only scheduled does not: an idle gate opens beside
it, and the next message of its thread does not wait. Runs of triggers and tasks are never scheduled."""
OpenRunStatus = Literal["scheduled", DueRunStatus]
"""``scheduled``: its start time is in the future, and it is not queued on its thread yet."""
FinishStatus = Literal["succeeded", "failed", "canceled"]
"""How a claim ends its run."""
EndedRunStatus = Literal[FinishStatus, "merged"]
"""``merged``: its message joined a running turn."""
RunStatus = Literal[OpenRunStatus, EndedRunStatus]

RestReason = Literal["auth", "rate_limit", "failures"]
"""Why a provider's key or model rests: the key was refused, or is over its limit; the model failed conversations."""
ProviderState = Literal["resting", "trying", "answering"]
"""``trying``: one call at a time, whose outcome decides for all. ``answering``: it is called, though it failed some."""

QueuedReason = Literal[
    "fleet_paused",
    "tenant_paused",
    "agent_paused",
    "agent_renamed",
    "provider",
    "thread_busy",
    "behind_in_thread",
    "tenant_full",
    "agent_full",
    "project",
    "suspect",
    "redis_unavailable",
    "no_worker",
    "worker",
]
"""Why a queued run does not run yet; the first that applies. ``full``: as many runs at once as it may have.
``project``: no live worker has the tools or the code of its agent; ``suspect``: it lost workers, and waits for a
process of its own; ``provider``: held until its model provider can be used; ``redis_unavailable``: Redis, which calls
the workers, does not answer; ``no_worker``: no worker of its queue is alive; ``worker``: only a free slot is
missing."""

RunReasonKind = Literal[
    QueuedReason,
    "scheduled",
    "canceling",
    "lock",
    "executes",
    "lease_expired",
    "call",
    "model",
    "waits",
    "ended",
]
"""Why a run has not moved. ``canceling``: its end was asked for; ``lock``: a lock in Redis that no run needs;
``executes``: a worker has it; ``lease_expired``: that worker was lost; ``call``: a tool executes; ``model``: it waits
for the model; ``waits``: for something from outside."""

OnBusy = Literal["enqueue", "reject", "interrupt", "steer", "collect"]
"""What a message does when its thread is busy."""
RunQueue = Literal["interactive", "background"]
"""Which queue the doorbell of a run rings on."""
LiveQueue = Literal[RunQueue, "effects"]
"""The queues of runs and of their effects."""
Queue = Literal[LiveQueue, "system"]
"""The queues of the broker."""
RunSource = Literal["api", "trigger", "task", "agent", "channel", "work_order", "evaluation"]
"""What a run was submitted by, and what a thread was begun by. Of inbound channels, which are clients of the API, runs
have ``api``."""
RunSort = Literal["created", "cost", "tokens", "duration", "queue_time"]
"""What a list of runs is sorted by."""
SortOrder = Literal["desc", "asc"]
CancelReason = Literal["cancel", "interrupt"]
AttemptEnd = Literal["waiting", "requeued", "lost", "engine_error", "held", "failed"]
"""How an attempt ended that did not end its run: the run waited, its worker requeued it, its lease expired, an
exception ended it that no code expected, its model provider could not be used, or the run failed and was
tried again."""
HoldReason = Literal["provider"]
"""Why a queued run is held, although a worker is free."""
OutageReason = Literal["down", "key_missing", "key_refused", "quota", "rate_limit", "model_missing"]
"""Why a model provider cannot be used. ``key_missing`` is about one worker: another one may have the key."""
RetryRefusal = Literal["not_failed", "thread_deleted", "answered", "not_newest", "forked", "effects_open"]
"""Why a run cannot be tried again. ``answered``: another run, an orchestration or a work order got its failure.
``not_newest``: its thread has gone on. ``forked``: a thread continues from its turn. ``effects_open``: effects of its
end are not done."""
SuspendedStatus = Literal["waiting", "queued"]
"""Status of a run after its suspension. ``queued``: it was canceled meanwhile."""

AnswerableWait = Literal["user", "approval"]
"""Waits that a person's answer ends."""
ExternalWait = Literal[AnswerableWait, "client_tool"]
"""Waits that end by a request from outside the fleet. ``client_tool``: a tool that the run's caller executes."""
WaitKind = Literal[ExternalWait, "agent", "timer", "message", "orchestration"]
"""``message``: a message of another agent of the same orchestration. ``orchestration``: the end of one."""
ResolvedWaitStatus = Literal["resolved", "timed_out"]
"""How a wait ends with a result. A wait of a canceled run has none."""
EndedWaitStatus = Literal[ResolvedWaitStatus, "canceled"]
WaitStatus = Literal["open", EndedWaitStatus]

DoorName = Literal["a2a", "ag-ui", "langgraph", "mcp", "openai"]
"""A protocol that the API can speak beside its own."""

# Turns

Role = Literal["user", "assistant", "system"]
TurnType = Literal["normal", "compaction"]
TurnStatus = Literal["running", "waiting", "succeeded", "failed", "aborted"]
TurnRole = Literal["manager", "worker", "unified"]
"""``worker``: another agent asked for the turn. ``manager``: no agent did, and the turn may give work to agents or
subagents. ``unified``: neither."""
MessageKind = Literal["query", "response", "tool_results", "steering", "summary"]
"""What part of a turn a message is."""
HeadMove = Literal["turn", "fork", "compaction", "retry", "import"]
"""Why the head of a thread moved."""
CompactionTrigger = Literal["context_limit", "overflow_recovery"]
"""Why a conversation was compacted: it came near the window, or the model said that it was over."""
RequestPartKind = Literal["form", "section", "tools"]
"""What is stored once of the requests to models: a section of a system prompt, a list of tools, or what names them."""
TrustLevel = Literal["sandbox", "controlled", "unrestricted"]
"""Which native tools the engine offers: none; files and web; the same plus Bash. Strictly additive."""
StopReason = Literal["end_turn", "max_tokens", "tool_use", "timeout", "aborted", "error"]
"""Why a turn stopped. ``tool_use``: it stopped between a step and the next model call, because the step
verdict asked for it or `max_turns` was reached."""
Limit = Literal["turns", "tokens", "cost", "time"]
"""Which of its own bounds ended a turn: `max_turns`, `token_budget`, `cost_budget_usd`, `timeout_s`."""
BudgetKind = Literal["ceiling", "tenant", "agent", "trigger", "orchestration"]
"""Of a budget that several runs share, by what it belongs to. ``ceiling``: the tenant's, set by its operator."""
ToolCallStatus = Literal["pending", "running", "completed", "failed", "interrupted", "deferred", "approved"]
"""``deferred``: its result comes from outside, later; the turn has stopped for it. ``approved``: it was deferred and
may now begin. The others as they read."""

# Feedback

FeedbackSource = Literal["person", "user", "code"]
"""What judged a run: a person of the tenant, an end user, or a program."""
Rating = Literal["up", "down"]
"""Which way a score points: above 0, or below."""

# Evaluations

VerdictStatus = Literal["passed", "failed", "not_judged"]
"""What an evaluator says of an answer. ``not_judged``: it could not judge, which is no success and no failure."""
EvaluationStatus = Literal["running", "done", "stopped", "canceled"]
"""``stopped``: its budget is spent, or the agent is gone."""
TrialArm = Literal["candidate", "baseline"]
"""Which of the two versions of an evaluation answers."""
TrialState = Literal["pending", "running", "done"]
"""``pending``: it has no run yet; ``done``: its run has ended, and the answer was judged, or it was left out."""

# Rollouts

OpenRolloutStatus = Literal["running", "waiting"]
"""``waiting``: the next step needs a person's approval."""
RolloutStatus = Literal[OpenRolloutStatus, "promoted", "stopped"]
"""``promoted``: the candidate is the current version since. ``stopped``: it is used no more."""
OPEN_ROLLOUTS: Final[tuple[OpenRolloutStatus, ...]] = get_args(OpenRolloutStatus)
GuardrailMeasure = Literal["failure", "cost", "latency", "feedback", "judge"]
"""What a guardrail watches: failed runs, dollars and seconds of a run, scores that people gave, scores of a judge."""

# Projects

ProjectItemKind = Literal["agent", "skill", "trigger"]
"""What a project of a repository can contain."""
ProjectAction = Literal["create", "update", "rename", "delete", "adopt", "forget", "drift", "orphan"]
"""What applying a project does with an item. ``adopt``: it exists already, and belongs to the project from now on.
``forget``: it was deleted on the fleet, and from the project. The last two change nothing: ``drift`` keeps what was
changed on the fleet, and an ``orphan`` is in the project no longer, and stays, since nothing is pruned."""
OnDrift = Literal["refuse", "keep", "overwrite"]
"""What applying a project does with fields that were changed on the fleet since it was last applied."""

# Rights

AccessRole = Literal["viewer", "operator", "builder", "admin"]
"""A named set of scopes of one tenant, from the least to the most. None has the scope `operator`, which
reaches across tenants."""

# The audit log

ActorKind = Literal["key", "person", "agent", "command"]
"""What made a change."""

# The stream of changes

ChangeSubject = Literal[
    "run", "wait", "thread", "orchestration", "task", "trigger", "delivery", "webhook", "pause", "feedback", "rollout"
]
"""What changes are of. ``wait``: a run asks a person or its caller; ``delivery``: an item of the inbox."""

# Effects and deliveries

EffectKind = Literal["delivery", "embeddings", "title"]
"""Post-run work of the fleet's own, in the order of its chain. Effects of packages follow it: ``PACKAGE:NAME``."""
EffectCondition = Literal["has_listener", "searchable", "untitled", "ended"]
"""Which ended runs an effect applies to: those whose end a webhook subscribes to; those that succeeded; those that
succeeded in a thread with two turns and no title; all but those of work orders."""
EffectStatus = Literal["pending", "running", "done", "failed"]
WebhookKind = Literal[
    "notification",
    "file",
    "note",
    "question",
    "approval",
    "run_completed",
    "work_order_completed",
    "work_order_review",
    "audit_recorded",
    "feedback_given",
    "rollout_changed",
    "score_drifted",
]
"""What a webhook may subscribe to."""
DeliveryKind = Literal[WebhookKind, "task_changed", "test"]
"""``task_changed``: a run ended, or asks a person, and a client named an address for that run's changes."""
DeliveryStatus = Literal["pending", "delivered", "failed", "closed"]
"""``closed``: the wait of a question or approval ended, so it is not sent; or a person closed an inbox item."""

# Tasks and triggers

OpenTaskStatus = Literal["draft", "active"]
TaskStatus = Literal[OpenTaskStatus, "done", "canceled"]
ResourceKind = Literal["url", "file"]
TriggerKind = Literal["cron", "at", "every"]
TriggerAction = Literal["run", "orchestrate"]
"""What a trigger starts: a run of its agent, or an orchestration under its agent."""
Overlap = Literal["skip", "queue", "cancel_other"]
"""What a trigger does at an occurrence while the run of an earlier one is open."""
CatchUp = Literal["once", "each"]
"""What happens to occurrences that were not fired in time, within the catch-up window."""
FiringOutcome = Literal["fired", "queued", "skipped"]
SkipReason = Literal[
    "missed",
    "caught_up",
    "overlap",
    "stopped",
    "gate",
    "max_runs_per_day",
    "max_cost_usd_per_day",
    "agent_deleted",
    "thread_deleted",
    "schedule",
    "orchestration",
]
"""``missed``: its time is longer ago than the catch-up window. ``caught_up``: a later occurrence fired instead.
``schedule``: it can no longer be read. ``orchestration``: none could be started; the detail says why."""

# Retention

KeptTurns = Literal["none", "latest"]
"""What retention keeps of a thread: ``none`` deletes it, ``latest`` deletes all but its latest turn."""

# Orchestrations, in the spelling of their specification

AgentRole = Literal["MASTER", "WORKER", "EXPERT", "REVIEWER"]
"""What an agent is in its orchestration. It decides which orchestration tools the agent gets."""
_WaitingState = Literal["WAITING_FOR_PARENT", "WAITING_FOR_CHILD", "WAITING_FOR_EXPERT"]
_ActiveState = Literal["PENDING", "STARTING", "RUNNING", _WaitingState]
_EndedState = Literal["COMPLETED", "FAILED", "KILLED"]
AgentState = Literal[_ActiveState, _EndedState]
PermissionMode = Literal["DEFAULT", "ACCEPT_EDITS", "BYPASS", "PLAN", "DELEGATE"]
"""How tool calls of an agent of an orchestration are authorized."""
RoutedMessageType = Literal[
    "QUESTION",
    "ANSWER",
    "PROGRESS_UPDATE",
    "TASK_RESULT",
    "EXPERT_REQUEST",
    "EXPERT_RESPONSE",
    "PEER_REQUEST",
    "PEER_RESPONSE",
    "SPAWN_REQUEST",
    "KILL_SIGNAL",
    "USER_PROMPT",
]
AwaitedSender = Literal["parent", "child", "expert", "any"]
"""Whose message a waiting agent needs. ``any`` is `wait_for_message`."""
HistoryEntryType = Literal["TEXT", "THINKING", "TOOL_CALL", "TOOL_RESULT", "USER_MESSAGE"]
"""What an entry of an agent's conversation is."""
HistoryDetail = Literal["full", "summary"]
"""How much of a conversation is shown: everything, or texts and the names of tools."""
JudgementStatus = Literal["asking", "succeeded", "failed"]
"""State of the question that a tenant's judge of models was asked last."""
RankingSource = Literal["ledger", "judgement", "static"]
"""What a score of a model is from: ended runs, the judge's answer, or the affinity."""
TaskCategory = Literal[
    "architecture",
    "complex-reasoning",
    "coding",
    "code-review",
    "planning",
    "tool-use",
    "exploration",
    "simple-tasks",
    "general",
    "agentic",
    "search",
    "documentation",
]
"""Kinds of work that models are ranked for."""
ModelTier = Literal["economy", "fast", "strong", "frontier"]
"""Classes of models, from the cheapest to the most capable."""
Complexity = Literal["simple", "medium", "complex", "expert"]
"""How hard a piece of work is; each needs a model of at least one tier, in the order of `ModelTier`."""
ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How much a model reasons before it answers; which of these a model takes depends on its provider."""

# Work orders, in the spelling of their specification

WorkStatus = Literal["succeeded", "failed", "in_progress"]
"""What the result of a work order reports."""
WorkStopReason = Literal[
    "ok",
    "needs_human",
    "in_progress",
    "provider_failed",
    "router_failed",
    "ajv_failed",
    "json_parse_failed",
    "rate_limited",
    "cost_cap_exceeded",
    "round_cap_exceeded",
    "invalid_request",
]
"""Why the work on an order stopped: the frozen vocabulary of the work order contract."""
PresentationMode = Literal["single_best", "side_by_side", "ranked"]
"""How a result shows several proposals."""
RoleKind = Literal["craft", "review", "general"]
"""What a role of a policy does: propose, review proposals, or make the final proposal from both."""
OrderState = Literal["running", "review", "ended"]
"""Where an order is. ``review``: a person decides on its outcome."""
TrailAudience = Literal["customer", "internal"]
"""Who may read an entry of an order's trail."""
ReviewVerdict = Literal["approve", "edit", "reject"]
"""How a person decides on the outcome of an order."""

# The fleet

PauseScope = Literal["fleet", "tenant", "agent"]
"""What people pause."""
SwitchScope = Literal[PauseScope, "rename"]
"""What a switch holds back. ``rename``: runs under a former id of an agent, and of an agent that is being renamed."""

DUE_RUNS: Final[tuple[DueRunStatus, ...]] = get_args(DueRunStatus)
OPEN_RUNS: Final[tuple[OpenRunStatus, ...]] = get_args(OpenRunStatus)
ENDED_RUNS: Final[tuple[EndedRunStatus, ...]] = get_args(EndedRunStatus)
RUN_QUEUES: Final[tuple[RunQueue, ...]] = get_args(RunQueue)
LIVE_QUEUES: Final[tuple[LiveQueue, ...]] = get_args(LiveQueue)
QUEUES: Final[tuple[Queue, ...]] = get_args(Queue)
ANSWERABLE: Final[tuple[AnswerableWait, ...]] = get_args(AnswerableWait)
EXTERNAL_WAITS: Final[tuple[ExternalWait, ...]] = get_args(ExternalWait)
ENDED_TURNS: Final[tuple[TurnStatus, ...]] = ("succeeded", "failed", "aborted")
OPEN_TASKS: Final[tuple[OpenTaskStatus, ...]] = get_args(OpenTaskStatus)
ACTIVE_AGENTS: Final[tuple[AgentState, ...]] = get_args(_ActiveState)
ENDED_AGENTS: Final[tuple[AgentState, ...]] = get_args(_EndedState)
EFFECT_KINDS: Final[tuple[EffectKind, ...]] = get_args(EffectKind)
OPEN_EFFECTS: Final[tuple[EffectStatus, ...]] = ("pending", "running")
TASK_CATEGORIES: Final[tuple[TaskCategory, ...]] = get_args(TaskCategory)
MODEL_TIERS: Final[tuple[ModelTier, ...]] = get_args(ModelTier)
COMPLEXITIES: Final[tuple[Complexity, ...]] = get_args(Complexity)


def words_of(vocabulary: Any) -> tuple[str, ...]:
    """Return the words of one of the types above, in its order."""
    return get_args(vocabulary)


def sql_list(words: Iterable[str]) -> str:
    """Return words as the list of an SQL ``IN``: ``('queued', 'running')``."""
    quoted = (f"'{word}'" for word in words)
    return f"({', '.join(quoted)})"
