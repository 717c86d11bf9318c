"""A conversation as messages of the protocol."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import orjson
from ag_ui.core import (
    ActivityMessage,
    AssistantMessage,
    ContentPart,
    DataSource,
    DocumentPart,
    FunctionCall,
    ImagePart,
    Message,
    ReasoningMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UrlSource,
    UserMessage,
)

from nova_workers.contracts.content import ContentBlock

from ..items import Item, MessageItem, ReasoningItem, ToolCallItem, ToolResultItem
from ..service import Door
from .parts import before_part, item_of, run_of

_MOST_TURNS: Final = 1_000
"""A longer conversation is not restated: the protocol has no pages, and what a restatement lacks is deleted."""
_NEWEST_TURNS: Final = 20
_PAGE_TURNS: Final = 100


async def missed_messages(
    door: Door, thread_id: str, run_id: str | None, first_step: int, held: Sequence[Message]
) -> list[Message] | None:
    """Return the conversation up to a part of a run, or all of it; None for a client that has it, or if it is too long.

    Args:
        held: What the client has.
    """
    newest, is_whole = await _items_before(door, thread_id, run_id, first_step, _NEWEST_TURNS)
    found = restated(newest, held, whole=is_whole)
    if found is None or is_whole:
        return found
    items, is_whole = await _items_before(door, thread_id, run_id, first_step, _MOST_TURNS)
    return restated(items, held, whole=True) if is_whole else None


async def _items_before(
    door: Door, thread_id: str, run_id: str | None, first_step: int, most_turns: int
) -> tuple[list[Item], bool]:
    pages: list[tuple[Item, ...]] = []
    at: int | None = None
    turns = min(_PAGE_TURNS, most_turns)
    for _ in range(most_turns // turns):
        page = await door.items_of_thread(thread_id, at=at, turns=turns)
        pages.append(page.items)
        at = page.goes_on_at
        if at is None:
            break
    found = [item for items in reversed(pages) for item in items]
    if run_id is not None:
        place = next((at for at, item in enumerate(found) if item.run_id == run_id), len(found))
        # The turn of a run that waits in the thread's queue is in no page yet.
        found = [*found[:place], *before_part(await door.items(run_id), first_step)]
    return found, at is None


def parent_of(call: ToolCallItem) -> str:
    """Return the message that a call belongs to, whether or not it has a text."""
    owner = call.id.removeprefix("call_").removesuffix(f"_{call.call_id}")
    return f"msg_{owner}_{call.step}"


def function_of(call: ToolCallItem) -> FunctionCall:
    """Return the name and the arguments of a call."""
    return FunctionCall(name=call.tool_name, arguments=orjson.dumps(call.params).decode())


def messages_of(items: Iterable[Item]) -> list[Message]:
    """Return items as messages: the text of a step and its calls are one."""
    messages: list[Message] = []
    for item in items:
        match item:
            case MessageItem(role="user"):
                messages.append(UserMessage(id=item.id, content=content_of(item.content)))
            case MessageItem():
                messages.append(AssistantMessage(id=item.id, content=item.text))
            case ReasoningItem():
                messages.append(ReasoningMessage(id=item.id, content=item.text))
            case ToolCallItem():
                _add_call(messages, item)
            case ToolResultItem():
                messages.append(
                    ToolMessage(
                        id=item.id,
                        tool_call_id=_call_of(item),
                        content=content_of(item.content) or item.error or "",
                        error=item.error,
                    )
                )
            case _:
                pass
    return messages


def restated(items: Sequence[Item], held: Sequence[Message], *, whole: bool) -> list[Message] | None:
    """Return the conversation, for a client that lacks a part of it, or has what is void; None for any other.

    Unless the items are the whole of it, what the client has of other runs is not judged.

    A client keeps a message where it is, and appends those that are new to it. So it keeps its ids of what is said
    before the first message that it lacks, and gets ours for the rest.
    """
    if any(isinstance(message, AssistantMessage) and item_of(message.id) is None for message in held):
        # What took place elsewhere the client has under its own ids.
        items = [item for item in items if item.run_id is not None]
    ours = messages_of(items)
    names = {item_of(message.id): message for message in held if item_of(message.id) is not None}
    answered = {message.tool_call_id: message for message in held if isinstance(message, ToolMessage)}
    lacking = {
        message.id
        for message in ours
        if message.id not in names
        and not isinstance(message, UserMessage)
        and not (isinstance(message, ToolMessage) and message.tool_call_id in answered)
    }
    present = {message.id for message in ours}
    judged = {item.run_id for item in items}
    void = [
        message for name, message in names.items() if name not in present and (whole or run_of(message.id) in judged)
    ]
    if not lacking and not void:
        return None
    return _in_order(ours, held, lacking, answered)


def content_of(content: Sequence[ContentBlock]) -> str | list[ContentPart]:
    """Return content as the protocol has it: as text where it is nothing else."""
    parts = [part for block in content if (part := _part(block)) is not None]
    if all(isinstance(part, TextPart) for part in parts):
        return "".join(part.text for part in parts if isinstance(part, TextPart))
    return parts


def _in_order(
    ours: Sequence[Message], held: Sequence[Message], lacking: set[str], answered: dict[str, ToolMessage]
) -> list[Message]:
    # What the client said itself, by the message of the agent that followed; None for what is new.
    said: dict[str | None, list[Message]] = {}
    pending: list[Message] = []
    followers = {message.id for message in ours if not isinstance(message, UserMessage)}
    for message in held:
        name = item_of(message.id)
        if name is None and not isinstance(message, ActivityMessage | ToolMessage):
            pending.append(message)
        elif name in followers:
            said[name], pending = pending, []
    said[None] = pending
    result: list[Message] = []
    waiting: list[Message] = []
    is_lacking = False
    names = {item_of(message.id): message.id for message in held}
    for message in ours:
        if isinstance(message, UserMessage):
            waiting.append(message)
            continue
        is_lacking |= message.id in lacking
        own = said.get(message.id)
        result += own if own and not is_lacking else waiting
        waiting = []
        known = answered.get(message.tool_call_id) if isinstance(message, ToolMessage) else None
        result.append(
            message.model_copy(update={"id": names.get(message.id, message.id if known is None else known.id)})
        )
    result += waiting if is_lacking or not said[None] else said[None]
    return result


def _add_call(messages: list[Message], item: ToolCallItem) -> None:
    call = ToolCall(id=item.id, function=function_of(item))
    parent = parent_of(item)
    match messages:
        case [*_, AssistantMessage(id=last) as message] if last == parent:
            messages[-1] = message.model_copy(update={"tool_calls": [*(message.tool_calls or ()), call]})
        case _:
            messages.append(AssistantMessage(id=parent, tool_calls=[call]))


def _call_of(result: ToolResultItem) -> str:
    return f"call_{result.id.removeprefix('res_')}"


def _part(block: ContentBlock) -> ContentPart | None:
    source: Any = block.get("source")
    match block.get("type"), source:
        case "text", _:
            return TextPart(text=str(block.get("text", "")))
        case "document", {"type": "text", "data": str(text)}:
            return TextPart(text=text)
        case ("image" | "document") as kind, {"type": "base64", "media_type": str(media), "data": str(data)}:
            where: Any = DataSource(value=data, mime_type=media)
        case ("image" | "document") as kind, {"type": "url", "url": str(url)}:
            where = UrlSource(value=url)
        case _:
            return None
    return ImagePart(source=where) if kind == "image" else DocumentPart(source=where)
