"""What the actions of the audit log are in words, for people; programs read the codes."""

from collections.abc import Mapping
from typing import Final


def _of(kind: str, noun: str, verbs: str = "created updated deleted", **acts: str) -> dict[str, str]:
    """Return the words of a kind of things.

    Args:
        kind: As in the codes.
        noun: What it is.
        verbs: The changes that are recorded of it.
        acts: What else is done with it, and where the words are others than noun and verb.
    """
    words = {verb: f"{noun} {'changed' if verb == 'updated' else verb}" for verb in verbs.split()}
    return {f"{kind}.{verb}": text for verb, text in {**words, **acts}.items()}


ACTIONS: Final[Mapping[str, str]] = {
    **_of("agent", "Agent", renamed="Agent renamed"),
    **_of("dataset", "Dataset"),
    **_of("evaluation", "Evaluation", "created deleted"),
    **_of("feedback", "Feedback", "updated deleted"),
    **_of("file", "File", "deleted"),
    **_of("key", "Key", revoked="Key revoked", rotated="Key rotated"),
    **_of("memory", "Memory"),
    **_of("note", "Note"),
    **_of("orchestration", "Orchestration", "", created="Orchestration started"),
    **_of("orchestration_config", "Configuration of orchestrations"),
    **_of("order_policy", "Policy of work orders"),
    **_of("order_secret", "Secret of work orders"),
    **_of(
        "pairing",
        "Right to write to a channel",
        created="Person asked to write to a channel",
        confirmed="Person admitted to a channel",
        deleted="Person taken off a channel",
    ),
    **_of("pause", "Pause", created="Paused", deleted="Pause ended"),
    **_of("push_config", "Address for changes of a run"),
    **_of(
        "rollout",
        "Rollout",
        created="Rollout started",
        breached="Rollout stopped by a guardrail",
        promoted="Rollout completed",
        stopped="Rollout stopped",
    ),
    **_of("run", "Run", "updated deleted", canceled="Run canceled"),
    **_of("sampling", "Sampling"),
    **_of("secret", "Secret"),
    **_of("skill", "Skill"),
    **_of("task", "Task"),
    **_of("tenant", "Tenant", ended="Tenant ended"),
    **_of("thread", "Conversation", "updated deleted"),
    **_of("thread_state", "State of a conversation"),
    **_of("trigger", "Trigger"),
    **_of("webhook", "Webhook"),
    # What changes no row of these.
    "access.refused": "Request refused",
    "approval.granted": "Tool call approved",
    "approval.refused": "Tool call refused",
    "archive.exported": "Tenant exported",
    "audit.deleted": "Old records of the audit log deleted",
    "audit.exported": "Audit log exported",
    "key.signed_in": "Key signed in",
    "key.signed_out": "Session ended",
    "lease.acquired": "Lease acquired",
    "lease.released": "Lease released",
    "person.signed_in": "Person signed in",
    "provider.cleared": "Model provider tried again",
    "question.answered": "Question answered",
    "run.failed": "Run ended as failed",
    "run.kicked": "Run looked at again",
    "run.requeued": "Run requeued",
    "worker.drained": "Worker ordered to drain",
}
"""Words by action."""


def describe_action(action: str) -> str:
    """Return an action in words. One of a later release has its own, with spaces."""
    return ACTIONS.get(action) or action.replace(".", " ").replace("_", " ").capitalize()
