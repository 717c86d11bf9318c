"""Checks the messages of an imported conversation: their content, calls with their results, and times."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from nova_workers.base.errors import InvalidInput
from nova_workers.contracts.content import ContentBlock, text_block
from nova_workers.contracts.http.wire import PastMessage
from nova_workers.domain.threads.rules.past import SaidMessage

from ...submitting import check_fields, checked_blocks, scaled

_CLOCKS_DIFFER: Final = timedelta(minutes=5)
_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,128}")
"""Ids and names that model providers take."""

_FIELDS: Mapping[str, tuple[str, ...]] = {
    "tool_use": ("type", "id", "name", "input"),
    "tool_result": ("type", "tool_use_id", "content", "is_error"),
}


async def scaled_messages(messages: Sequence[PastMessage]) -> list[PastMessage]:
    """Return messages with smaller images instead of those that providers do not take in every conversation."""
    return [
        message
        if isinstance(message.content, str) or not any(block.get("type") == "image" for block in message.content)
        else message.model_copy(update={"content": list(await scaled(message.content))})
        for message in messages
    ]


def checked_messages(messages: Sequence[PastMessage], *, max_chars: int, now: datetime) -> list[SaidMessage]:
    """Return the messages of a conversation as the model is given them.

    Takes about 10 us a message, so a long conversation is checked off the event loop.

    Args:
        messages: Oldest first, and `scaled_messages`.
        max_chars: Most characters of text of one message.
        now: No message is of a later time.

    Raises:
        InvalidInput: The message names the first one that cannot be imported by its index, and what to do.
    """
    times = _times(messages, now)
    calls = _Calls()
    said: list[SaidMessage] = []
    for index, (message, said_at) in enumerate(zip(messages, times, strict=True)):
        field = f"messages.{index}"
        if index == 0 and message.role != "user":
            raise InvalidInput(
                f"{field} is the assistant's, and a model takes conversations that begin with the user. Leave it out, "
                "or put the user's message before it.",
                field=f"{field}.role",
            )
        content = [text_block(message.content)] if isinstance(message.content, str) else message.content
        calls.take(index, message.role, content)
        checked_blocks(_without_calls(content, message.role, field), f"{field}.content", max_chars=max_chars)
        said.append(SaidMessage(message.role, content, said_at))
    calls.end(len(messages))
    return said


def _times(messages: Sequence[PastMessage], now: datetime) -> list[datetime]:
    """Return when each message was written; where that is not given, when the one before it was."""
    given = [message.created_at for message in messages]
    latest = next((time for time in given if time is not None), now)
    times: list[datetime] = []
    for index, time in enumerate(given):
        field = f"messages.{index}.created_at"
        if time is not None and time > now + _CLOCKS_DIFFER:
            raise InvalidInput(f"{field} is {time.isoformat()}, which has not come yet. Send a past time.", field=field)
        if time is not None and time < latest:
            raise InvalidInput(
                f"{field} is {time.isoformat()}, before the message above it ({latest.isoformat()}). "
                "Sort the messages by time, oldest first.",
                field=field,
            )
        latest = time or latest
        times.append(latest)
    return times


class _Calls:
    """The tool calls of a conversation: each has its result in the next message."""

    def __init__(self) -> None:
        self._index_of: dict[str, int] = {}
        self._open: list[str] = []

    def take(self, index: int, role: str, content: Sequence[ContentBlock]) -> None:
        """Take a message.

        Raises:
            InvalidInput: Calls before it have no result, or it has a result without a call, or a call without an id.
        """
        field = f"messages.{index}"
        places = [(at, block) for at, block in enumerate(content) if block.get("type") == "tool_result"]
        for at, block in places:
            where = f"{field}.content.{at}"
            if role != "user":
                raise InvalidInput(
                    f"{where} is a result of a tool in a message of the assistant; send it in a message of the role "
                    "'user'.",
                    field=where,
                )
            check_fields(block, _FIELDS["tool_result"], where)
            call_id = block.get("tool_use_id")
            if call_id not in self._open:
                raise InvalidInput(
                    f"{where} has the tool_use_id {call_id!r:.80}, of which the message before has no call without a "
                    "result. Put it right after its call, or leave it out.",
                    field=f"{where}.tool_use_id",
                )
            self._open.remove(call_id)
            if at >= len(places):
                raise InvalidInput(
                    f"{where} is after other content; put the results of tools first in their message.", field=where
                )
        self.end(index)
        for at, block in enumerate(content):
            if block.get("type") == "tool_use":
                self._begin(index, block, f"{field}.content.{at}", role)

    def end(self, index: int) -> None:
        """End the conversation, or the message at an index.

        Raises:
            InvalidInput: A call has no result.
        """
        if self._open:
            call_id = self._open[0]
            caller = self._index_of[call_id]
            raise InvalidInput(
                f"The call {call_id!r} of messages.{caller} has no result. Give it a 'tool_result' block in "
                f"messages.{index}, of the role 'user', or leave the call out.",
                field=f"messages.{caller}.content",
            )

    def _begin(self, index: int, block: ContentBlock, where: str, role: str) -> None:
        if role != "assistant":
            raise InvalidInput(
                f"{where} is a call of a tool in a message of the user; send it in a message of the role 'assistant'.",
                field=where,
            )
        check_fields(block, _FIELDS["tool_use"], where)
        for name in ("id", "name"):
            value: Any = block.get(name)
            if not isinstance(value, str) or _TOKEN.fullmatch(value) is None:
                raise InvalidInput(
                    f"{where}.{name} is {value!r:.80}; model providers take 1 to 128 letters, digits, '_' and '-'. "
                    "Rename it.",
                    field=f"{where}.{name}",
                )
        if not isinstance(block.get("input"), dict):
            raise InvalidInput(f"{where}.input must be an object: the arguments of the call.", field=f"{where}.input")
        call_id: str = block["id"]
        if call_id in self._index_of:
            raise InvalidInput(
                f"{where}.id is {call_id!r}, as that of a call of messages.{self._index_of[call_id]}. Give each call "
                "an id of its own.",
                field=f"{where}.id",
            )
        self._index_of[call_id] = index
        self._open.append(call_id)


def _without_calls(content: Sequence[ContentBlock], role: str, field: str) -> list[tuple[int, ContentBlock]]:
    """Return the other blocks of a message with their places, and those of its results of tools."""
    others: list[tuple[int, ContentBlock]] = []
    for at, block in enumerate(content):
        where = f"{field}.content.{at}"
        kind = block.get("type")
        if kind == "tool_result":
            _check_result(block, where)
        elif kind in ("thinking", "redacted_thinking"):
            raise InvalidInput(
                f"{where} is the thinking of a model, which only its provider reads. Leave it out.", field=where
            )
        elif kind != "tool_use":
            if role == "assistant" and kind != "text":
                raise InvalidInput(
                    f"{where} has the type {kind!r:.80}; a message of the assistant takes 'text' and 'tool_use' "
                    "blocks.",
                    field=f"{where}.type",
                )
            others.append((at, block))
    return others


def _check_result(block: ContentBlock, where: str) -> None:
    content: Any = block.get("content")
    if not isinstance(block.get("is_error", False), bool):
        raise InvalidInput(f"{where}.is_error must be true or false.", field=f"{where}.is_error")
    if content is None or isinstance(content, str):
        return
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise InvalidInput(f"{where}.content must be a text, or a list of content blocks.", field=f"{where}.content")
    checked_blocks(list(enumerate(content)), f"{where}.content", max_chars=None)
