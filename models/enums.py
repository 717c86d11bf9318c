"""The closed vocabularies of the ledger, kept as text with a CHECK: a new word is one migration line."""

from enum import StrEnum

from sqlalchemy import CheckConstraint

__all__ = [
    "CatchUp",
    "DeliveryKind",
    "DeliveryStatus",
    "EffectKind",
    "EffectStatus",
    "FiringOutcome",
    "HeadMove",
    "MessageKind",
    "OnBusy",
    "Overlap",
    "ResourceKind",
    "RunQueue",
    "RunSource",
    "RunStatus",
    "SwitchScope",
    "TaskStatus",
    "ToolCallStatus",
    "TriggerKind",
    "TurnStatus",
    "TurnType",
    "WaitKind",
    "WaitStatus",
    "one_of",
]


class RunStatus(StrEnum):
    """Where a run stands. `succeeded`, `failed`, `canceled` and `merged` are final."""

    SCHEDULED = "scheduled"
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"
    MERGED = "merged"


class OnBusy(StrEnum):
    """What a message does when its thread is busy."""

    ENQUEUE = "enqueue"
    REJECT = "reject"
    INTERRUPT = "interrupt"
    STEER = "steer"
    COLLECT = "collect"


class RunQueue(StrEnum):
    """Which queue a run's doorbell rings on."""

    INTERACTIVE = "interactive"
    BACKGROUND = "background"


class RunSource(StrEnum):
    """Who asked for a run."""

    API = "api"
    TRIGGER = "trigger"
    TASK = "task"
    AGENT = "agent"
    CHANNEL = "channel"
    WORK_ORDER = "work_order"


class TurnType(StrEnum):
    """What a turn records."""

    NORMAL = "normal"
    COMPACTION = "compaction"


class TurnStatus(StrEnum):
    """How a turn stands or ended."""

    RUNNING = "running"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ABORTED = "aborted"


class MessageKind(StrEnum):
    """What part of a turn a message is."""

    QUERY = "query"
    RESPONSE = "response"
    TOOL_RESULTS = "tool_results"
    STEERING = "steering"
    SUMMARY = "summary"


class ToolCallStatus(StrEnum):
    """How a tool call stands or ended."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    DEFERRED = "deferred"
    APPROVED = "approved"


class HeadMove(StrEnum):
    """Why a thread's head moved."""

    TURN = "turn"
    FORK = "fork"
    COMPACTION = "compaction"


class WaitStatus(StrEnum):
    """How a wait stands or ended."""

    OPEN = "open"
    RESOLVED = "resolved"
    TIMED_OUT = "timed_out"
    CANCELED = "canceled"


class WaitKind(StrEnum):
    """What a run waits for."""

    USER = "user"
    APPROVAL = "approval"
    AGENT = "agent"
    TIMER = "timer"


class TaskStatus(StrEnum):
    """Where a task stands. `done` and `canceled` are final."""

    DRAFT = "draft"
    ACTIVE = "active"
    DONE = "done"
    CANCELED = "canceled"


class ResourceKind(StrEnum):
    """What a task's resource is."""

    URL = "url"
    FILE = "file"


class TriggerKind(StrEnum):
    """How a trigger's schedule is written."""

    CRON = "cron"
    AT = "at"
    EVERY = "every"


class Overlap(StrEnum):
    """What a trigger does when its slot comes and the run of an earlier one is still open."""

    SKIP = "skip"
    QUEUE = "queue"
    CANCEL_OTHER = "cancel_other"


class CatchUp(StrEnum):
    """What becomes of slots that nobody fired in time, within the catch-up window."""

    ONCE = "once"
    EACH = "each"


class FiringOutcome(StrEnum):
    """What came of a slot."""

    FIRED = "fired"
    QUEUED = "queued"
    SKIPPED = "skipped"


class EffectKind(StrEnum):
    """Post-run work, in the order of its chain."""

    DELIVERY = "delivery"
    EMBEDDINGS = "embeddings"
    TITLE = "title"


class EffectStatus(StrEnum):
    """How an effect stands or ended."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class DeliveryKind(StrEnum):
    """What is handed over."""

    NOTIFICATION = "notification"
    FILE = "file"
    NOTE = "note"
    RUN_COMPLETED = "run_completed"
    TEST = "test"
    QUESTION = "question"
    APPROVAL = "approval"


class DeliveryStatus(StrEnum):
    """How a delivery stands or ended."""

    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"
    CLOSED = "closed"


class SwitchScope(StrEnum):
    """What a pause switch holds back."""

    FLEET = "fleet"
    TENANT = "tenant"
    AGENT = "agent"


def one_of(column: str, values: type[StrEnum]) -> CheckConstraint:
    """Return the CHECK that keeps a text column within a vocabulary."""
    words = ", ".join(f"'{value.value}'" for value in values)
    return CheckConstraint(f"{column} IN ({words})", name=column)
