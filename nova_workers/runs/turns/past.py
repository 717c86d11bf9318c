"""The conversation before a turn, with the event context of each of its turns."""

from __future__ import annotations

from dataclasses import replace

from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.content import Message, text_block
from nova_workers.contracts.runs import Claim
from nova_workers.ledger.database import Database
from nova_workers.ledger.threads.history import HistoryTurn, load_history_turns
from nova_workers.prompts import event_words
from nova_workers.runs.persist import persist

__all__ = ["as_past", "past_turns"]


async def past_turns(database: Database, claim: Claim, abort: AbortSignal) -> tuple[HistoryTurn, ...]:
    """Return the turns before a claimed run's, as their models read them.

    Raises:
        RunLost: The database was unavailable until the lease expired.
    """
    parent = claim.parent_turn_id
    if parent is None:
        return ()
    turns = await persist(database, abort, lambda c: load_history_turns(c, claim.tenant_id, parent))
    return tuple(as_past(turn) for turn in turns)


def as_past(turn: HistoryTurn) -> HistoryTurn:
    """Return a turn with its event context before its message, as the engine sent it."""
    if turn.event is None:
        return turn
    query, *others = turn.messages
    opened = Message(query.role, (text_block(event_words(turn.event)), *query.content))
    return replace(turn, messages=(opened, *others))
