"""What a model is told of the turns before its own.

The ledger keeps what was said. How a turn ended stands there beside it, and is put into words here, at each reading: so
nobody has to tell what was said from what we say of it, and the same turn gives the same words for ever.
"""

from collections.abc import Sequence

from nova_workers.contracts.content import ContentBlock, Message, text_block
from nova_workers.ledger.threads.history import HistoryTurn

__all__ = ["INTERRUPTED", "STOPPED", "conversation", "repair", "told"]

STOPPED = "(stopped by user)"
_ERROR_CHARS = 500

INTERRUPTED = "[The tool call was interrupted before it ended. It may or may not have taken effect.]"


def conversation(turns: Sequence[HistoryTurn]) -> tuple[Message, ...]:
    """Return the messages of turns, in order, in a form that the Messages API takes."""
    return repair([message for turn in turns for message in told(turn)])


def told(turn: HistoryTurn) -> tuple[Message, ...]:
    """Return the messages of a turn, and how it ended where that was before its time.

    Of a turn that was stopped, the words that it had come to stay, with ``(stopped by user)`` after them; of one that
    failed, with ``(error: …)``. Either way the last word is the assistant's.
    """
    ending = _ending(turn)
    messages = repair(turn.messages)
    if ending is None:
        return messages
    last = messages[-1] if messages else None
    if last is None or last.role != "assistant":
        return (*messages, Message("assistant", (text_block(ending),)))
    return (*messages[:-1], Message("assistant", (*last.content, text_block(f"\n\n{ending}"))))


def _ending(turn: HistoryTurn) -> str | None:
    if turn.stopped:
        return STOPPED
    if turn.error is None:
        return None
    message = " ".join(turn.error.split()) or "unknown"
    return f"(error: {message if len(message) <= _ERROR_CHARS else message[:_ERROR_CHARS] + '…'})"


def repair(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages with a result for every tool_use, and without messages that are empty.

    A missing result says that the call was interrupted. Results that stand in the next user message are left where
    they are; missing ones are put before the rest of it, where the API wants them. Messages that need nothing are
    returned as they are, so the repair of a repaired conversation changes nothing.
    """
    repaired: list[Message] = []
    pending: list[str] = []
    for message in messages:
        if not message.content:
            continue
        if pending:
            missing = _missing(pending, message)
            if message.role == "user":
                repaired.append(Message("user", (*missing, *message.content)) if missing else message)
                pending = []
                continue
            repaired.append(Message("user", missing))
        repaired.append(message)
        pending = _calls(message)
    if pending:
        repaired.append(Message("user", tuple(_interrupted(call) for call in pending)))
    return tuple(repaired)


def _calls(message: Message) -> list[str]:
    if message.role != "assistant":
        return []
    return [str(block["id"]) for block in message.content if block.get("type") == "tool_use"]


def _missing(pending: Sequence[str], message: Message) -> tuple[ContentBlock, ...]:
    given = (
        {str(block.get("tool_use_id")) for block in message.content if block.get("type") == "tool_result"}
        if message.role == "user"
        else set[str]()
    )
    return tuple(_interrupted(call) for call in pending if call not in given)


def _interrupted(call_id: str) -> ContentBlock:
    return {"type": "tool_result", "tool_use_id": call_id, "content": INTERRUPTED, "is_error": True}
