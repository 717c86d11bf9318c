"""What caused a turn, as the ledger keeps it beside the turn's message."""

from __future__ import annotations

from pydantic import AwareDatetime, BaseModel, ConfigDict


class TriggerOccurrence(BaseModel):
    """The trigger that fired the run, and for which of its planned times."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    id: str
    title: str | None = None
    scheduled_for: AwareDatetime | None = None
    manual: bool = False
    """It was fired on request, and not by its schedule."""


class EventContext(BaseModel):
    """The facts of one turn's event. Written once, with the turn's first message, and read at each later turn.

    A field that a later release adds needs a default: rows without it stay.
    """

    model_config = ConfigDict(defer_build=True, frozen=True)

    at: AwareDatetime
    """When the turn was first started."""
    timezone: str
    """An IANA name: the trigger's, where one fired the run, or else the tenant's."""
    source: str
    queue: str
    channel: str | None = None
    thread: str | None = None
    """The thread's title at that time."""
    asked_by_agent: bool = False
    """Another agent's run waits for the answer."""
    trigger: TriggerOccurrence | None = None
