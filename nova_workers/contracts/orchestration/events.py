"""Live events of an orchestration: those of its agents' runs, and what happens to agents and between them.

A record travels on the stream of the orchestration, whose ids are `TreeCursor`. The definition of the events of runs is
`nova_workers.contracts.events`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from nova_workers.base.vocabulary import AgentRole, AgentState, RoutedMessageType
from nova_workers.contracts.events import Event


class _Event(BaseModel):
    model_config = ConfigDict(defer_build=True, frozen=True, extra="ignore")

    at: datetime | None = None


class AgentStateChanged(_Event):
    """An agent is in a new state; a new agent is PENDING."""

    type: Literal["agent_state"] = "agent_state"
    agent_id: str
    parent_id: str | None = None
    depth: int
    role: AgentRole
    name: str
    state: AgentState
    model: str | None = None
    activations: int = 1
    waits_for: tuple[str, ...] = ()
    """Agents whose messages it waits for."""
    summary: str | None = None
    error_code: str | None = None
    error_message: str | None = None


class AgentMessageSent(_Event):
    """A message between agents, a report of progress included. Without a source a person or the fleet sent it."""

    type: Literal["agent_message"] = "agent_message"
    message_id: str
    message_type: RoutedMessageType
    source_id: str | None = None
    target_id: str
    correlation_id: str | None = None
    text: str = ""
    percent: float | None = None
    """The share that a report of progress states."""


class OrchestrationEnd(_Event):
    """The master ended. More events follow only if the orchestration is continued."""

    type: Literal["orchestration_end"] = "orchestration_end"
    orchestration_id: str
    state: AgentState
    summary: str | None = None
    error_code: str | None = None
    error_message: str | None = None


TreeEvent = Annotated[Event | AgentStateChanged | AgentMessageSent | OrchestrationEnd, Field(discriminator="type")]


class TreeRecord(BaseModel):
    """An event on the stream of an orchestration, with its source."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="ignore")

    agent_id: str | None = None
    """The agent of the orchestration that it is about."""
    run_id: str | None = None
    event_id: str | None = None
    """Its id on the stream of the run; None for events that no run has."""
    event: TreeEvent


tree_record_adapter: TypeAdapter[TreeRecord] = TypeAdapter(TreeRecord)


class TreeNews(BaseModel):
    """What one transaction changed in a tree."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    orchestration_id: str
    records: tuple[TreeRecord, ...] = ()


class TreeCursor(BaseModel):
    """The id of an event of an orchestration: the entry's id in Redis, and the event's number within the entry.

    ``0-0-0`` is before the first.
    """

    model_config = ConfigDict(defer_build=True, frozen=True)

    ms: int = Field(default=0, ge=0, le=2**53)
    seq: int = Field(default=0, ge=0, le=2**53)
    number: int = Field(default=0, ge=0, le=2**31)

    @classmethod
    def parse(cls, text: str) -> TreeCursor:
        """Read ``<ms>-<seq>-<number>``.

        Raises:
            ValueError: The text does not have this form.
        """
        parts = text.split("-")
        if len(parts) != 3 or not all(part.isascii() and part.isdigit() for part in parts):
            raise ValueError(f"{text!r} is not an event id; expected <ms>-<seq>-<number>, such as 1732000000000-0-1")
        ms, seq, number = map(int, parts)
        return cls(ms=ms, seq=seq, number=number)

    def __str__(self) -> str:
        return f"{self.ms}-{self.seq}-{self.number}"

    def key(self) -> tuple[int, int, int]:
        """Return a value that orders cursors of one orchestration."""
        return (self.ms, self.seq, self.number)
