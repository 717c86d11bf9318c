"""The turns before a run's, as its model reads them."""

from __future__ import annotations

from dataclasses import replace

from nova_workers.contracts.content import Message, text_block
from nova_workers.domain.prompts.rules import event_words
from nova_workers.domain.threads.sql.history import HistoryTurn


def as_past(turn: HistoryTurn) -> HistoryTurn:
    """Return a turn with its event context before its message, as the engine sent it."""
    if turn.event is None:
        return turn
    query, *others = turn.messages
    opened = Message(query.role, (text_block(event_words(turn.event)), *query.content))
    return replace(turn, messages=(opened, *others))
