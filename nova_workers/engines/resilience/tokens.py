"""A local estimate of a conversation's tokens."""

import json
from collections.abc import Sequence
from typing import Any

from nova_workers.contracts.content import Message, media_tokens
from nova_workers.contracts.usage import TokenUsage, most_tokens

CHARS_A_TOKEN = 3.5
"""English prose has about 4, code and JSON about 3."""
_BLOCK_TOKENS = 8
"""What a provider adds to a message or a block at most, such as its role."""


class TokenEstimate:
    """The estimate for one turn: the provider's last exact count, plus an estimate of later messages by length."""

    def __init__(self) -> None:
        self._known_messages = 0
        self._known_tokens = 0

    def learn(self, messages: Sequence[Message], used: TokenUsage) -> None:
        """Record the provider's count of the tokens that it read for these messages, with system prompt and tools."""
        self._known_messages = len(messages)
        self._known_tokens = used.input_tokens + used.cache_read_tokens + used.cache_write_tokens

    def of(self, messages: Sequence[Message], fixed: Any) -> int:
        """Return an estimate of the tokens that the model reads.

        Args:
            messages: The whole conversation.
            fixed: System prompt and tools as sent; used until there is an exact count.
        """
        tokens = self._known_tokens
        if not tokens:
            tokens = round(len(json.dumps(fixed, ensure_ascii=False)) / CHARS_A_TOKEN)
        return tokens + sum(_tokens(list(message.content)) for message in messages[self._known_messages :])

    def at_most(self, messages: Sequence[Message], fixed: Any) -> int:
        """Return how many tokens the model reads at most, as far as texts decide it. See `of`."""
        tokens = self._known_tokens or most_tokens(json.dumps(fixed, ensure_ascii=False))
        fresh = messages[self._known_messages :]
        return tokens + sum(_BLOCK_TOKENS + _most_tokens(list(message.content)) for message in fresh)


def _most_tokens(value: Any) -> int:
    match value:
        case str():
            return most_tokens(value) + 1
        case list():
            return sum(_most_tokens(part) for part in value)
        case dict():
            media = media_tokens(value)
            return _BLOCK_TOKENS + sum(_most_tokens(part) for part in value.values()) if media is None else media
        case _:
            return 4


def _tokens(value: Any) -> int:
    match value:
        case str():
            return round(len(value) / CHARS_A_TOKEN) + 1
        case list():
            return sum(_tokens(part) for part in value)
        case dict():
            media = media_tokens(value)
            return sum(_tokens(part) for part in value.values()) if media is None else media
        case _:
            return 1
