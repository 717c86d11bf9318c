"""A response: a part of a run, from its beginning or from the results of its caller's calls to the next such calls.

Its id names the run and the step with which it begins, so that any process finds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple, Self

import orjson

from nova_workers.base.errors import missing
from nova_workers.base.vocabulary import ENDED_RUNS
from nova_workers.contracts.content import ContentBlock, JsonObject
from nova_workers.contracts.http.wire import RunView, UsageView

from ..items import FileItem, Item, MessageItem, QuestionItem, ReasoningItem, ToolCallItem, ToolResultItem

Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]

_PREFIX: Final = "resp_"
_CONVERSATION: Final = "conv_"


class ResponseId(NamedTuple):
    """The id of a response."""

    run_id: str
    first_step: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read an id.

        Raises:
            NotFound: It is none that a response can have.
        """
        ulid, _, step = text.removeprefix(_PREFIX).partition("_")
        digits = step or "0"
        if not text.startswith(_PREFIX) or not ulid.isalnum() or not (digits.isascii() and digits.isdigit()):
            raise missing("response", text[:80])
        return cls(f"run_{ulid}", int(digits[:9]))

    def __str__(self) -> str:
        ulid = self.run_id.removeprefix("run_")
        return f"{_PREFIX}{ulid}_{self.first_step}" if self.first_step else f"{_PREFIX}{ulid}"


def conversation_id(thread_id: str) -> str:
    """Return the id of a thread as a conversation."""
    return f"{_CONVERSATION}{thread_id.removeprefix('thr_')}"


def thread_of(conversation: str) -> str:
    """Return the id of the thread that is a conversation."""
    return f"thr_{conversation.removeprefix(_CONVERSATION)}"


def part_of(items: Iterable[Item], first_step: int) -> tuple[list[Item], int | None]:
    """Return the output of a response, and its last step if it ends with calls of its caller."""
    own = [item for item in items if item.step >= first_step and not _is_input(item)]
    last = min((item.step for item in own if isinstance(item, ToolCallItem) and item.for_caller), default=None)
    return (own if last is None else [item for item in own if item.step <= last]), last


def status_of(run: RunView, last_step: int | None) -> Status:
    """Return the status of a response."""
    if last_step is not None:
        return "completed"
    if run.status not in ENDED_RUNS:
        return "in_progress" if run.attempt else "queued"
    if run.status == "failed":
        return "failed"
    if run.status == "canceled":
        return "cancelled"
    return "incomplete" if run.stop_reason == "max_tokens" or run.limit_reached else "completed"


def response_document(run: RunView, response: ResponseId, items: Sequence[Item]) -> JsonObject:
    """Return a response as a whole, from its run and the run's items."""
    output, last_step = part_of(items, response.first_step)
    status = status_of(run, last_step)
    is_over = status not in {"queued", "in_progress"}
    error = None
    if run.error is not None and status == "failed":
        error = {"code": "server_error", "message": run.error.message}
    return {
        "id": str(response),
        "object": "response",
        "created_at": int(run.created_at.timestamp()),
        "completed_at": int(run.finished_at.timestamp()) if run.finished_at and status == "completed" else None,
        "status": status,
        "incomplete_details": {"reason": _incomplete(run)} if status == "incomplete" else None,
        "model": run.agent_id,
        "previous_response_id": None,
        "conversation": {"id": conversation_id(run.thread_id)},
        "instructions": run.instructions,
        "output": [document for item in output for document in item_documents(item)],
        "error": error,
        "tools": [{"type": "function", "name": name, **_UNKNOWN_TOOL} for name in run.client_tools],
        "tool_choice": _choice(run),
        "truncation": "auto",
        "parallel_tool_calls": True,
        "text": {"format": _format(run)},
        "top_p": 1,
        "presence_penalty": 0,
        "frequency_penalty": 0,
        "top_logprobs": 0,
        "temperature": 1 if run.temperature is None else run.temperature,
        "reasoning": None,
        "usage": _usage(run.usage) if is_over and run.usage is not None else None,
        "max_output_tokens": run.max_output_tokens,
        "max_tool_calls": None,
        "store": True,
        "background": False,
        "service_tier": "default",
        "metadata": run.metadata,
        "safety_identifier": None,
        "prompt_cache_key": None,
    }


_UNKNOWN_TOOL: Final[JsonObject] = {"description": None, "parameters": None, "strict": None}


def item_documents(item: Item, status: str = "completed") -> Iterator[JsonObject]:
    """Yield an item in the form of the protocol; nothing for one that the client does not execute."""
    match item:
        case MessageItem(role="assistant"):
            yield message_document(item.id, item.text, status)
        case MessageItem():
            content = [_input_part(block) for block in item.content]
            yield {"type": "message", "id": item.id, "status": status, "role": "user", "content": content}
        case ReasoningItem():
            yield reasoning_document(item.id, item.text)
        case ToolCallItem(for_caller=True):
            yield call_document(item.id, item.call_id, item.tool_name, item.params, status)
        case ToolResultItem(for_caller=True):
            yield {
                "type": "function_call_output",
                "id": item.id,
                "call_id": item.call_id,
                "output": [_input_part(block) for block in item.content],
                "status": "completed",
            }
        case ToolCallItem() | ToolResultItem() | QuestionItem() | FileItem():
            # No type of the protocol fits what the client does not execute.
            return


def message_document(item_id: str, text: str | None, status: str) -> JsonObject:
    """Return a message of the agent; without text it has no part yet."""
    content = [] if text is None else [text_part(text)]
    return {"type": "message", "id": item_id, "status": status, "role": "assistant", "content": content}


def reasoning_document(item_id: str, text: str | None) -> JsonObject:
    """Return reasoning."""
    content = [] if text is None else [{"type": "reasoning_text", "text": text}]
    return {"type": "reasoning", "id": item_id, "summary": [], "content": content}


def call_document(item_id: str, call_id: str, name: str, params: JsonObject | None, status: str) -> JsonObject:
    """Return a call of a function of the client."""
    arguments = "" if params is None else orjson.dumps(params).decode()
    return {
        "type": "function_call",
        "id": item_id,
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
        "status": status,
    }


def text_part(text: str) -> JsonObject:
    """Return text of the agent."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _is_input(item: Item) -> bool:
    is_said = isinstance(item, MessageItem) and item.role == "user"
    return is_said or (isinstance(item, ToolResultItem) and item.for_caller)


def _input_part(block: ContentBlock) -> JsonObject:
    source: Any = block.get("source") or {}
    url = source.get("url") or f"data:{source.get('media_type', '')};base64,{source.get('data', '')}"
    match block.get("type"):
        case "image":
            return {"type": "input_image", "image_url": url, "detail": "auto"}
        case "document":
            return {"type": "input_file", "file_url": url}
        case _:
            return {"type": "input_text", "text": str(block.get("text", ""))}


def _incomplete(run: RunView) -> str:
    is_long = run.stop_reason == "max_tokens" or run.limit_reached == "tokens"
    return "max_output_tokens" if is_long else run.limit_reached or "stopped"


def _choice(run: RunView) -> str | JsonObject:
    if run.tool_choice is None or isinstance(run.tool_choice, str):
        return run.tool_choice or "auto"
    return {"type": "function", "name": run.tool_choice.name}


def _format(run: RunView) -> JsonObject:
    if run.output_schema is None:
        return {"type": "text"}
    return {
        "type": "json_schema",
        "name": "answer",
        "description": None,
        "schema": run.output_schema,
        "strict": True,
    }


def _usage(usage: UsageView) -> JsonObject:
    read = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": usage.cache_read_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": read + usage.output_tokens,
    }
