"""The view of an ended run without a read: what was known before its end, with what its last event tells."""

from pydantic import ValidationError

from nova_workers.contracts.events import StreamEnd
from nova_workers.contracts.http.wire import RunView, UsageView
from nova_workers.domain.streams.rules.wire import LiveEvent, RunEnding, message_digest


def ended_view(before: RunView, final: LiveEvent | None) -> RunView | None:
    """Return a run as the ledger has it at its end. None if that must be read.

    A worker sends the last event after the commit of the end. Of what that event does not tell, only the message may
    have changed since `before`, as it may be edited until a worker claims it: then the digests differ.

    Args:
        before: The run when it was accepted, or later.
        final: Its last event.
    """
    if final is None or final.ending is None:
        return None
    try:
        ending, end = RunEnding.model_validate(final.ending), StreamEnd.model_validate(final.event)
    except ValidationError:
        return None
    if (end.run_id, end.status) != (before.id, "succeeded") or end.usage is None:
        return None
    if ending.message != message_digest(before.message):
        return None
    return before.model_copy(
        update={
            "agent_id": ending.agent_id,
            "agent_version": ending.agent_version,
            "status": end.status,
            "attempt": final.cursor.attempt,
            "position": None,
            "waiting_for": None,
            "waits": [],
            "cancel_requested_at": ending.cancel_requested_at,
            "turn_id": ending.turn_id,
            "stop_reason": end.stop_reason,
            "limit_reached": end.limit,
            "text": end.text,
            "usage": UsageView(**end.usage.model_dump(include=set(UsageView.model_fields))),
            "started_at": ending.started_at,
            "finished_at": ending.finished_at,
        }
    )
