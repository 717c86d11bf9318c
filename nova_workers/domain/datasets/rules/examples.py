"""What an example is made of: its key, its split, its size, and the part of a conversation that it has. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import orjson

from nova_workers.contracts.content import ContentBlock, JsonObject, Message, portable, storable_json, text_block
from nova_workers.contracts.http.datasets import (
    MAX_CONTEXT_MESSAGES,
    MAX_EXAMPLE_BYTES,
    MAX_RECORDED_CALLS,
    ExampleGive,
    ExamplesFromRuns,
    Shares,
)
from nova_workers.domain.datasets.rules.redaction import ExampleRedactor
from nova_workers.domain.datasets.sql import NewExample, SourceRun

_KEY_CHARS: Final = 16
_KEPT_BLOCKS: Final = frozenset({"text", "image", "document", "tool_use", "tool_result"})
_SORTED: Final = orjson.OPT_SORT_KEYS


class TooLarge(Exception):
    """An example has more bytes than are kept."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(f"it has {size_bytes:,} bytes; at most {MAX_EXAMPLE_BYTES:,} are kept")


def given_example(given: ExampleGive, shares: Shares | None, redactor: ExampleRedactor) -> NewExample:
    """Return the example of a request.

    Raises:
        TooLarge: It is.
    """
    blocks = [text_block(given.input)] if isinstance(given.input, str) else given.input
    context = [{"role": message.role, "content": message.content} for message in given.context]
    said = {
        "input": blocks,
        "context": context,
        "calls": [call.model_dump() for call in given.calls],
        "expected": given.expected,
        "rubric": given.rubric,
    }
    return _made(given.key, said, redactor, tags=given.tags, split=given.split, shares=shares)


def taken_example(
    source: SourceRun, history: Sequence[Sequence[Message]], taking: ExamplesFromRuns, redactor: ExampleRedactor
) -> tuple[NewExample, bool]:
    """Return the example of a run, and whether the conversation before it was shortened.

    Args:
        source: The run.
        history: The messages of each turn before it, oldest first.
        taking: The request.
        redactor: Of the dataset.

    Raises:
        TooLarge: It is, even without the conversation.
    """
    said: dict[str, Any] = {
        "input": list(source.content),
        "context": [],
        "calls": [_recorded(call) for call in source.calls if call["result"] is not None or call["error"]],
        "expected": source.answer if taking.expected == "answer" else taking.expected_text,
        "rubric": taking.rubric,
    }
    said["calls"] = said["calls"][:MAX_RECORDED_CALLS]
    split = taking.split if isinstance(taking.split, str) else None
    shares = taking.split if isinstance(taking.split, Shares) else None
    turns = [turn for messages in history if (turn := _plain_turn(messages))]
    left = MAX_EXAMPLE_BYTES - len(orjson.dumps(said)) - 1_000
    kept = _newest(turns, left)
    said["context"] = [message for turn in kept for message in turn]
    example = _made(
        source.run_id,
        said,
        redactor,
        tags=taking.tags,
        split=split,
        shares=shares,
        source=source,
    )
    return example, len(kept) < len(turns)


def split_of(key: str, shares: dict[str, float]) -> str:
    """Return the split of an example: always the same for a key and the same shares."""
    place = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") / 2**64
    for split, share in shares.items():
        place -= share
        if place < 0:
            return split
    return next(reversed(shares))


def _made(
    key: str | None,
    said: dict[str, Any],
    redactor: ExampleRedactor,
    *,
    tags: Sequence[str],
    split: str | None,
    shares: Shares | None,
    source: SourceRun | None = None,
) -> NewExample:
    clean: dict[str, Any] = storable_json(redactor.json(said))
    packed = orjson.dumps(clean, option=_SORTED)
    if len(packed) > MAX_EXAMPLE_BYTES:
        raise TooLarge(len(packed))
    key = key or hashlib.sha256(packed).hexdigest()[:_KEY_CHARS]
    if split is None and shares is not None:
        split = split_of(key, shares.shares)
    words = sorted(set(tags))
    digest = hashlib.sha256(packed + orjson.dumps([words, split])).hexdigest()
    return NewExample(
        key=key,
        digest=digest,
        split=split,
        tags=words,
        **clean,
        source_thread_id=None if source is None else source.thread_id,
        source_run_id=None if source is None else source.run_id,
    )


def _recorded(call: JsonObject) -> JsonObject:
    """Return a tool call of the ledger as an example has it."""
    failed = call["status"] != "completed"
    result: Any = call["result"]
    if result is None:
        result = call["error"] or ""
    return {"tool": call["tool"], "arguments": call["arguments"], "result": result, "is_error": failed}


def _plain_turn(messages: Sequence[Message]) -> list[JsonObject]:
    """Return the messages of a turn as any provider takes them: without thinking, and none that is empty."""
    plain: list[JsonObject] = []
    for message in messages:
        content: list[ContentBlock] = [
            block for block in portable(message.content) if block.get("type") in _KEPT_BLOCKS
        ]
        if content:
            plain.append({"role": message.role, "content": content})
    # A conversation begins with the user: what has no question left has no answer either.
    return plain if plain and plain[0]["role"] == "user" else []


def _newest(turns: Sequence[list[JsonObject]], size_bytes: int) -> Sequence[list[JsonObject]]:
    """Return as many of the newest turns as are small enough together."""
    messages = 0
    for back, turn in enumerate(reversed(turns)):
        size_bytes -= len(orjson.dumps(turn))
        messages += len(turn)
        if size_bytes < 0 or messages > MAX_CONTEXT_MESSAGES:
            return turns[len(turns) - back :]
    return turns
