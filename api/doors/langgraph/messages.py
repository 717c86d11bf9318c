"""Items as messages of LangChain, as they are sent over HTTP."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from nova_workers.contracts.content import ContentBlock, JsonObject
from nova_workers.contracts.http.wire import RunView
from nova_workers.contracts.waits import AskApproval, AskUser, CallClientTool, WaitView

from ..items import Item, MessageItem, QuestionItem, ReasoningItem, ToolCallItem, ToolResultItem, call_item_id
from ..questions import outside_waits

AGENT: Final = "agent"
"""The name of the one node of an agent as a graph: its model."""
TOOLS: Final = "tools"
"""The name of the node that calls tools."""


def messages_of(items: Iterable[Item]) -> list[JsonObject]:
    """Return items as messages: reasoning, text and calls of a step are one. Questions and files are none."""
    messages: list[JsonObject] = []
    for item in items:
        match item:
            case MessageItem(role="user"):
                messages.append(human_message(item))
            case MessageItem() | ReasoningItem() | ToolCallItem():
                if not (messages and messages[-1]["type"] == "ai" and messages[-1]["id"] == answer_id(item)):
                    messages.append(answer_message(answer_id(item)))
                add_to_answer(messages[-1], item)
            case ToolResultItem():
                messages.append(tool_message(item))
            case _:
                pass
    return messages


def answer_id(item: MessageItem | ReasoningItem | ToolCallItem) -> str:
    """Return the id of the message that what a model said in a step is."""
    if isinstance(item, ToolCallItem):
        owner = item.id.removeprefix("call_").removesuffix(f"_{item.call_id}")
        return f"msg_{owner}_{item.step}"
    return id_of_text(item.id)


def id_of_text(item_id: str) -> str:
    """Return the id of the message that has a text or reasoning of the model."""
    return f"msg_{item_id.partition('_')[2]}"


def human_message(item: MessageItem) -> JsonObject:
    """Return the message of a person."""
    return {**_message("human", item.id), "content": content_of(item.content)}


def answer_message(message_id: str) -> JsonObject:
    """Return a message of the model without content."""
    return {**_message("ai", message_id), "content": "", "tool_calls": [], "invalid_tool_calls": []}


def add_to_answer(message: JsonObject, item: MessageItem | ReasoningItem | ToolCallItem) -> None:
    """Add what the model said in the same step."""
    match item:
        case MessageItem():
            message["content"] = item.text
        case ReasoningItem():
            message["additional_kwargs"] = {"reasoning_content": item.text}
        case ToolCallItem():
            call = {"type": "tool_call", "id": item.id, "name": item.tool_name, "args": item.params}
            message["tool_calls"].append(call)


def tool_message(item: ToolResultItem) -> JsonObject:
    """Return the result of a call."""
    return {
        **_message("tool", item.id),
        "content": content_of(item.content) or item.error or "",
        "name": item.tool_name,
        "tool_call_id": f"call_{item.id.removeprefix('res_')}",
        "status": "success" if item.status == "completed" else "error",
    }


def content_of(content: Sequence[ContentBlock]) -> str | list[JsonObject]:
    """Return content as text where it is nothing else, and as blocks otherwise."""
    if all(block.get("type") == "text" for block in content):
        return "".join(str(block.get("text", "")) for block in content)
    return [_block(block) for block in content]


def interrupts_of(run: RunView) -> list[JsonObject]:
    """Return the interrupts of a waiting run: its open waits on its caller or a person."""
    return [_interrupt(run.id, wait) for wait in outside_waits(run)]


def is_asked(item: Item) -> bool:
    """Return whether a run waits for an answer to an item, when it was given."""
    return (isinstance(item, QuestionItem) and item.is_open) or (isinstance(item, ToolCallItem) and item.for_caller)


def _interrupt(run_id: str, wait: WaitView) -> JsonObject:
    match wait.request:
        case AskUser(question=question, options=options):
            value: JsonObject = {"type": "question", "question": question, "options": list(options)}
        case AskApproval(tool_name=name, params=params, reason=reason):
            value = {"type": "approval", "tool_name": name, "args": params, "reason": reason}
        case CallClientTool(tool_name=name, params=params):
            value = {"type": "tool_call", "tool_name": name, "args": params}
        case _:
            value = {"type": wait.request.kind}
    return {"id": wait.id, "value": {**value, "tool_call_id": call_item_id(run_id, wait.tool_call_id)}}


def _message(kind: str, message_id: str) -> JsonObject:
    return {"type": kind, "id": message_id, "additional_kwargs": {}, "response_metadata": {}}


def _block(block: ContentBlock) -> JsonObject:
    source: Any = block.get("source")
    match block.get("type"), source:
        case "image", {"type": "base64", "media_type": str(media), "data": str(data)}:
            return {"type": "image_url", "image_url": {"url": f"data:{media};base64,{data}"}}
        case "image", {"type": "url", "url": str(url)}:
            return {"type": "image_url", "image_url": {"url": url}}
        case "document", {"type": "base64", "media_type": str(media), "data": str(data)}:
            return {"type": "file", "mime_type": media, "base64": data}
        case "document", {"type": "url", "url": str(url)}:
            return {"type": "file", "url": url}
        case _:
            return dict(block)
