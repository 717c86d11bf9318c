"""The HTTP contract of inbound channels: which process serves each, and whether it rests after failures."""

from datetime import datetime

from nova_workers.contracts.bodies import View

LEASE_PREFIX = "channel:"
"""Begins the name of the lease by which one process of several serves a channel."""


class InboundChannelView(View):
    """An inbound channel that a process serves, or has served."""

    name: str
    """That of its lease, without ``channel:``."""
    holder: str
    """The process that serves it, or did last."""
    is_served: bool
    """Whether that process is alive, as far as its lease shows."""
    error: str | None
    """Why it rests, in words for people. Null: it works, or no process has tried for an hour."""
    failing_since: datetime | None
    next_try_at: datetime | None
    """Null where `error` is."""
    retry_requested_at: datetime | None
    """When a person asked for a try at once; it begins within seconds."""
