"""About how many tokens a conversation has, without asking anybody."""

import json
from collections.abc import Sequence
from typing import Any

from nova_workers.contracts.content import Message

__all__ = ["TokenEstimate"]

CHARS_A_TOKEN = 3.5
"""English prose has about 4, code and JSON about 3."""
_MEDIA_TOKENS = {"image": 1_600, "document": 3_000}
"""A picture of the size that models look at; two pages. Their base64 says nothing of their tokens."""


class TokenEstimate:
    """Follows one turn: what the provider counted last is exact, what came since is reckoned by its length."""

    def __init__(self) -> None:
        self._known_messages = 0
        self._known_tokens = 0

    def learn(self, messages: int, tokens: int) -> None:
        """Note what the provider counted.

        Args:
            messages: How many messages it read.
            tokens: All that it read of them, system prompt and tools included.
        """
        self._known_messages, self._known_tokens = messages, tokens

    def of(self, messages: Sequence[Message], fixed: Any) -> int:
        """Return about how many tokens the model has to read.

        Args:
            messages: The whole conversation.
            fixed: System prompt and tools, as they go over the wire; looked at until something is known.
        """
        tokens = self._known_tokens
        if not tokens:
            tokens = round(len(json.dumps(fixed, ensure_ascii=False)) / CHARS_A_TOKEN)
        return tokens + sum(_tokens(list(message.content)) for message in messages[self._known_messages :])


def _tokens(value: Any) -> int:
    match value:
        case str():
            return round(len(value) / CHARS_A_TOKEN) + 1
        case list():
            return sum(_tokens(part) for part in value)
        case {"type": "image" | "document" as kind, "source": {"type": "base64"}}:
            return _MEDIA_TOKENS[kind]
        case dict():
            return sum(_tokens(part) for part in value.values())
        case _:
            return 1
