"""Parts of runs, and the ids by which clients name what a part asked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Self

from ..items import Item, QuestionItem, ToolCallItem, ToolResultItem, call_item_id

_CALL: Final = re.compile(r"call_([0-9A-Z]{26})_(.+)", re.DOTALL)
_INTERRUPT: Final = re.compile(r"int_([0-9A-Z]{26})_([0-9A-Z]{26})")
# What was void once, and began anew, has a number after its id.
_TEXT: Final = re.compile(r"((?:msg|rs)_([0-9A-Z]{26})_(?:in)?\d*)(?:\.\d+)?")
_RESULT: Final = re.compile(r"(res_([0-9A-Z]{26})_.+)", re.DOTALL)


class Asked(NamedTuple):
    """What a client answers: a call or a question of a run.

    Attributes:
        name: The id of the call in its run, or of the wait.
    """

    run_id: str
    name: str

    @classmethod
    def by_call(cls, tool_call_id: str) -> Self | None:
        """Read the id of a call; None for one that is not of this fleet."""
        found = _CALL.fullmatch(tool_call_id)
        return None if found is None else cls(f"run_{found[1]}", found[2])

    @classmethod
    def by_interrupt(cls, interrupt_id: str) -> Self | None:
        """Read the id of an interrupt; None for one that is not of this fleet."""
        found = _INTERRUPT.fullmatch(interrupt_id)
        return None if found is None else cls(f"run_{found[1]}", f"wait_{found[2]}")


def interrupt_id(question: QuestionItem) -> str:
    """Return the id of a question as an interrupt."""
    return f"int_{(question.run_id or '').removeprefix('run_')}_{question.id.removeprefix('wait_')}"


def tool_call_id(question: QuestionItem) -> str:
    """Return the id of the call that a question is about."""
    return call_item_id(question.run_id or "", question.call_id)


def item_of(message_id: str) -> str | None:
    """Return the id of the item that a message of the protocol is; None for a message that a client made."""
    found = _found(message_id)
    return None if found is None else found[1]


def run_of(message_id: str) -> str | None:
    """Return the run that a message belongs to; None for a message that a client made."""
    found = _found(message_id)
    return None if found is None else f"run_{found[2]}"


def _found(message_id: str) -> re.Match[str] | None:
    return _TEXT.fullmatch(message_id) or _RESULT.fullmatch(message_id)


def asks(item: Item) -> bool:
    """Return whether a part of a run ends with an item: its client or a person has to answer it."""
    return isinstance(item, QuestionItem) or (isinstance(item, ToolCallItem) and item.for_caller)


def before_part(items: Sequence[Item], first_step: int) -> list[Item]:
    """Return the items before a part, without results of calls that a person permitted: the part goes on with them."""
    asked = {item.call_id for item in items if isinstance(item, QuestionItem) and item.step == first_step - 1}
    return [item for item in items if item.step < first_step and not goes_on(item, first_step, asked)]


def goes_on(item: Item, first_step: int, asked: set[str]) -> bool:
    """Return whether an item is the result of a call about which the part before asked a person."""
    if not isinstance(item, ToolResultItem) or item.for_caller:
        return False
    return item.step == first_step - 1 and item.call_id in asked


def first_open_step(items: Sequence[Item]) -> int:
    """Return the step with which the part of a run begins that is not over yet."""
    waiting = _open_steps(items)
    asked = {item.step for item in items if asks(item)}
    return 1 + max((step for step in asked if step not in waiting), default=-1)


def open_asks(items: Sequence[Item]) -> list[QuestionItem | ToolCallItem]:
    """Return the questions, and the calls that the client executes, that are not answered yet."""
    answered = _answered(items)
    return [
        item
        for item in items
        if (isinstance(item, QuestionItem) and item.is_open)
        or (isinstance(item, ToolCallItem) and item.for_caller and item.call_id not in answered)
    ]


def _open_steps(items: Sequence[Item]) -> set[int]:
    return {item.step for item in open_asks(items)}


def _answered(items: Iterable[Item]) -> set[str]:
    return {item.call_id for item in items if isinstance(item, ToolResultItem)}
