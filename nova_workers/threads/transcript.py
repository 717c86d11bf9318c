"""Repair of a conversation: the Messages API refuses a tool_use without its result."""

from collections.abc import Sequence

from nova_workers.contracts.content import ContentBlock, Message

__all__ = ["INTERRUPTED", "repair"]

INTERRUPTED = "[The tool call was interrupted before it ended. It may or may not have taken effect.]"


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
