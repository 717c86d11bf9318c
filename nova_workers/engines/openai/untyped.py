"""Reads JSON of servers of any form: what has another type than expected counts as absent."""

from collections.abc import Iterator
from typing import Any

from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.usage import TokenUsage
from nova_workers.engines import bounds

_CACHED = (("cached_tokens",), ("prompt_cache_hit_tokens",))
"""Where servers put the count of cached tokens that have no details."""


def word(value: object) -> str:
    """Return a text, or a number as text; ``""`` for anything else."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""


def list_of(value: object) -> list[Any]:
    """Return a list; one object is a list of itself, anything else is empty."""
    if isinstance(value, list):
        items: list[Any] = value
        return items
    return [value] if isinstance(value, dict) else []


def objects(value: object) -> Iterator[JsonObject]:
    """Yield the objects of a list."""
    return (item for item in list_of(value) if isinstance(item, dict))


def texts_of(value: object) -> Iterator[tuple[bool, str]]:
    """Yield the texts of content, each with whether it is reasoning.

    Content is a text, or a list of texts and parts, whose text is in a field, at times as a list of parts again.
    """
    if isinstance(value, str):
        yield False, value
        return
    for part in list_of(value):
        if isinstance(part, str):
            yield False, part
        elif isinstance(part, dict):
            thinks = "thinking" in part or "reasoning" in word(part.get("type"))
            inner = next((part[key] for key in ("text", "thinking", "content") if part.get(key)), None)
            # One level down only: deeper than that no server goes.
            given = (inner,) if isinstance(inner, str) else (word(each.get("text")) for each in objects(inner))
            yield from ((thinks, text) for text in given if text)


def counted(usage: object, *, read: str, produced: str) -> TokenUsage | None:
    """Return a provider's counts as the contract's; None if it counts nothing.

    These providers count cached tokens among those that were read. Servers leave out what they do not count.

    Args:
        usage: The provider's value.
        read: Name of the count of tokens that the model read.
        produced: Name of the count of those that it produced.
    """
    if not isinstance(usage, dict):
        return None
    given: JsonObject = usage
    cached = _count(given, f"{read}_details", "cached_tokens") or max(_count(given, *path) for path in _CACHED)
    written = _count(given, f"{read}_details", "cache_write_tokens")
    counts = TokenUsage(
        input_tokens=max(0, _count(given, read) - cached - written),
        output_tokens=_count(given, produced),
        cache_read_tokens=cached,
        cache_write_tokens=written,
        reasoning_tokens=_count(given, f"{produced}_details", "reasoning_tokens"),
        cost_usd=None,
    )
    return counts if counts.total_tokens else None


def _count(value: object, *path: str) -> int:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return bounds.count(value)
