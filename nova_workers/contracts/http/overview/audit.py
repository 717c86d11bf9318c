"""The HTTP contract of the audit log."""

from datetime import datetime

from nova_workers.contracts.bodies import View
from nova_workers.vocabulary import ActorKind

__all__ = ["AuditEventView"]


class AuditEventView(View):
    """One change that a key, an agent or a command made."""

    id: str
    at: datetime
    actor_kind: ActorKind
    actor_id: str
    """Of the key or the agent; of a command its name."""
    actor_name: str | None
    """The key's name; null for a key of another tenant, or one that is gone, and for an agent."""
    address: str | None
    """Of the client whose request it was; of a command the name of its machine."""
    trace_id: str | None
    """Of the request, as in the fleet's logs and traces."""
    run_id: str | None
    """The run whose agent did it."""
    action: str
    """Kind of the thing and a verb, such as `agent.updated`."""
    target_kind: str
    target_id: str
    fields: list[str]
    """Names of what an update changed, such as `spec.trust`; never values."""
