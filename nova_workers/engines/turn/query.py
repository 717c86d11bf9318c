"""The message that a turn answers."""

from __future__ import annotations

from nova_workers.contracts.content import ContentBlock, Message, text_block
from nova_workers.contracts.engine import EngineOptions

__all__ = ["query_message"]


def query_message(message: str | tuple[ContentBlock, ...], options: EngineOptions) -> Message:
    """Return the message as the model gets it: the event context in a block of its own, then the content."""
    content = (text_block(message),) if isinstance(message, str) else message
    if options.event_context:
        content = (text_block(options.event_context), *content)
    return Message("user", content)
