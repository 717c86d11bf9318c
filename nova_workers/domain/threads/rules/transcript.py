"""Renders earlier turns as the messages of a model call.

The ledger stores messages and, separately, how each turn ended. The ending becomes text only here, so stored messages
contain only what was sent and answered, and a turn is always rendered alike.
"""

from collections.abc import Sequence

from nova_workers.contracts.content import ContentBlock, Message, text_block
from nova_workers.contracts.steps import NO_RESULT
from nova_workers.domain.threads.sql.history import HistoryTurn

STOPPED = "(stopped by user)"
_ERROR_CHARS = 500


def conversation(turns: Sequence[HistoryTurn]) -> tuple[Message, ...]:
    """Return the messages of turns, in order, in a form that the Messages API accepts."""
    return repair([message for turn in turns for message in messages_of(turn)])


def messages_of(turn: HistoryTurn) -> tuple[Message, ...]:
    """Return the messages of a turn, with a note if it ended early.

    The partial text of a stopped turn is followed by ``(stopped by user)``, that of a failed one by ``(error: …)``. In
    both cases the last message is the assistant's.
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

    A missing result is replaced by a note that it is not known, at the start of the next user message as the
    API requires; existing results stay. The function is idempotent.
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
    return {"type": "tool_result", "tool_use_id": call_id, "content": NO_RESULT, "is_error": True}
