"""The HTTP contract of the audit log."""

from datetime import datetime
from typing import Literal

from nova_workers.contracts.bodies import View

__all__ = ["AuditEventView"]


class AuditEventView(View):
    """One change that a key or an agent made."""

    id: str
    at: datetime
    actor_kind: Literal["key", "agent"]
    actor_id: str
    actor_name: str | None
    """The key's name; null for a key of another tenant, or one that is gone, and for an agent."""
    address: str | None
    """Of the client whose request it was."""
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
