"""Estimates of how much of a model's context messages fill, where no provider counted."""

from collections.abc import Iterable

import orjson

from nova_workers.contracts.content import ContentBlock, media_tokens
from nova_workers.contracts.usage import CHARS_PER_TOKEN


def content_chars(content: Iterable[ContentBlock]) -> int:
    """Return the characters of content; an image or document counts as a text with as many tokens."""
    return sum(_block_chars(block) for block in content)


def _block_chars(block: ContentBlock) -> int:
    media = media_tokens(block)
    if media is not None:
        return media * CHARS_PER_TOKEN
    match block:
        case {"type": "tool_result", "content": list() as parts}:
            # Tool results may contain images and documents.
            return len(orjson.dumps({**block, "content": None})) + content_chars(parts)
        case _:
            return len(orjson.dumps(block))
