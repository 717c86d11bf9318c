"""Makes each response storable and resendable before any other part of the turn uses it.

A model may send anything that JSON can express, and a gateway even more. The ledger and the provider's next request
accept less: unique call ids, inputs that are objects, numbers of 64 bits, text without NUL and lone surrogates, bounded
nesting. A call that breaks one of these rules is kept in a form that both accept, is not executed, and gets an error as
its result, which tells the model what to correct.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from nova_workers.contracts.content import (
    ContentBlock,
    JsonObject,
    Message,
    is_storable_integer,
    storable,
    storable_json,
)
from nova_workers.engines.turn.seam import Response

_MAX_DEPTH = 100
"""Nesting limit of a call's input. Libraries stop at about 250 levels, including those around the input."""
_MAX_KEPT_CHARS = 10_000
"""How much is kept of an input that is not an object: enough to see what the model meant."""
_MAX_PATH_CHARS = 200
_MAX_ID_CHARS = 128
_NOT_ALLOWED_IN_IDS = re.compile(r"[^a-zA-Z0-9_-]")
"""Characters that the provider refuses in a call's id."""
_NO_NAME = "unnamed_tool"


@dataclass(frozen=True, slots=True)
class Admitted:
    """A response in the form that the turn uses.

    Attributes:
        rejected: For calls that must not be executed: the error for the model, by id in `response`.
        amended: Whether `response` differs from what the model sent.
    """

    response: Response
    rejected: Mapping[str, str] = field(default_factory=dict[str, str])
    amended: bool = False


class UsedIds:
    """The ids of calls in a conversation that grows. What was read is not read again."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._read = 0

    def of(self, conversation: Sequence[Message]) -> Set[str]:
        """Return the ids in the conversation, which may have notes in place of results, but not fewer messages."""
        for message in conversation[self._read :]:
            self._ids.update(str(block.get("id")) for block in message.content if _is_call(block))
        self._read = len(conversation)
        return self._ids


def admit(response: Response, used: Set[str]) -> Admitted:
    """Return a response in a form that the ledger can store and the provider accepts again.

    Args:
        response: What the model sent.
        used: Ids of the calls in all previous messages.
    """
    taken: set[str] = set()
    content: list[ContentBlock] = []
    rejected: dict[str, str] = {}
    for block in response.content:
        if not _is_call(block):
            kept = _storable_block(block)
            # A provider takes back only the thinking that it signed.
            if "signature" not in block or kept == block:
                content.append(kept)
            continue
        call, problem = _admit_call(block, used, taken)
        taken.add(call["id"])
        if problem is not None:
            rejected[call["id"]] = problem
        content.append(call)
    model = None if response.model is None else storable(response.model)
    admitted = replace(response, content=tuple(content), model=model)
    return Admitted(admitted, rejected, amended=bool(rejected) or admitted.content != response.content)


def input_problem(given: object) -> str | None:
    """Return why a call's input cannot be stored and sent again; None if it can."""
    if not isinstance(given, dict):
        return "the input is not a JSON object"
    return _problem(given, "input", _MAX_DEPTH)


def parse_input(text: str) -> Any:
    """Return the input that a provider streamed as JSON. Text that cannot be parsed is returned unchanged."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _admit_call(block: ContentBlock, used: Set[str], taken: Set[str]) -> tuple[ContentBlock, str | None]:
    given: Any = block.get("input")
    problem = input_problem(given)
    name = block.get("name")
    if not isinstance(name, str) or not name.strip():
        name, problem = _NO_NAME, "it names no tool"
    # Its input has a level around it.
    kept = storable_json(block, max_depth=_MAX_DEPTH + 1)
    call = {**kept, "id": _free_id(block.get("id"), used, taken), "name": storable(name)}
    if not isinstance(given, dict):
        call["input"] = _kept_input(given)
    if problem is None:
        return call, None
    return call, f"This call was not made: {problem}. Correct that, and call the tool again."


def _storable_block(block: ContentBlock) -> ContentBlock:
    kept: ContentBlock = storable_json(block, max_depth=_MAX_DEPTH)
    if "input" in kept and not isinstance(kept["input"], dict):
        kept["input"] = _kept_input(kept["input"])
    return kept


def _kept_input(given: object) -> JsonObject:
    if isinstance(given, dict):
        kept: JsonObject = storable_json(given, max_depth=_MAX_DEPTH)
        return kept
    try:
        text = given if isinstance(given, str) else json.dumps(given)
    except (TypeError, ValueError, RecursionError):
        text = f"a value of type {type(given).__name__}"
    return {"invalid_input": storable(text)[:_MAX_KEPT_CHARS]}


def _free_id(given: object, used: Set[str], taken: Set[str]) -> str:
    text = given if isinstance(given, str) else ""
    base = _NOT_ALLOWED_IN_IDS.sub("_", text)[:_MAX_ID_CHARS] or "call"
    free, number = base, 1
    while free in used or free in taken:
        number += 1
        suffix = f"_{number}"
        free = base[: _MAX_ID_CHARS - len(suffix)] + suffix
    return free


def _is_call(block: ContentBlock) -> bool:
    return block.get("type") == "tool_use"


def _problem(value: object, path: str, depth: int) -> str | None:
    if isinstance(value, dict | list):
        return _container_problem(value, path, depth)
    if isinstance(value, str):
        return _text_problem(value, path)
    if isinstance(value, float) and not math.isfinite(value):
        return f"{path} is {value}, which is not a JSON number"
    if isinstance(value, int) and not is_storable_integer(value):
        return f"{path} is an integer over 64 bits; give it as a string"
    return None


def _container_problem(value: dict[Any, Any] | list[Any], path: str, depth: int) -> str | None:
    if depth <= 0:
        return f"the input nests deeper than {_MAX_DEPTH} levels"
    if isinstance(value, list):
        found = (_problem(item, _step(path, f"[{at}]"), depth - 1) for at, item in enumerate(value))
        return next(filter(None, found), None)
    keys = (_text_problem(str(key), f"a key of {path}") for key in value)
    items = (_problem(item, _step(path, f".{key}"), depth - 1) for key, item in value.items())
    return next(filter(None, chain(keys, items)), None)


def _step(path: str, step: str) -> str:
    return path if len(path) > _MAX_PATH_CHARS else storable(path + step)[:_MAX_PATH_CHARS]


def _text_problem(text: str, path: str) -> str | None:
    if "\x00" in text:
        return f"{path} holds the character U+0000, which cannot be stored"
    # A complete pair of surrogates becomes its character without loss.
    if storable(text).count("\ufffd") > text.count("\ufffd"):
        return f"{path} holds half of a surrogate pair, which is no character"
    return None
