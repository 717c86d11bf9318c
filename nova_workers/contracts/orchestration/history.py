"""The conversation of an agent as its parent, the API and the search for rationales read it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from nova_workers.base.vocabulary import HistoryEntryType
from nova_workers.contracts.content import JsonObject


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One entry of an agent's conversation.

    Attributes:
        run_id: The activation that it belongs to.
        text: Of a text, a thought, a message or a tool's result; empty for a call.
        call_id: Of a call, and of its result.
        tool_name: Of a call, and of its result.
        params: Of a call.
        failed: Whether the result is an error.
    """

    type: HistoryEntryType
    run_id: str | None
    at: datetime
    text: str = ""
    call_id: str | None = None
    tool_name: str | None = None
    params: JsonObject | None = None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Rationale:
    """Why an agent made a tool call.

    Attributes:
        text: What it wrote or thought before the call.
        score: How much that gives a reason: the sum of the scores of its words.
    """

    text: str
    score: int
