"""A response: a part of a run, from its beginning or from what it asked for to the next thing that it asks for.

Its id names the run and the step with which it begins, so that any process finds it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal

import orjson

from nova_workers.base.errors import InvalidInput, NotFound, missing
from nova_workers.contracts.content import ContentBlock, JsonObject
from nova_workers.contracts.http.wire import RunView
from nova_workers.contracts.run_options import ClientTool
from nova_workers.contracts.waits import AskApproval, AskUser

from ..items import FileItem, Item, MessageItem, QuestionItem, ReasoningItem, ToolCallItem, ToolResultItem, call_item_id
from ..questions import outside_waits
from ..service import RecordedRun
from .bodies import JSON_OBJECT
from .inputs import Approval
from .parts import PartId, asks, cut, is_ulid, usage_of_part

Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]

_CONVERSATION: Final = "conv_"


class ResponseId(PartId):
    """The id of a response."""

    __slots__ = ()
    prefix = "resp_"
    kind = "response"


def conversation_id(thread_id: str) -> str:
    """Return the id of a thread as a conversation."""
    return f"{_CONVERSATION}{thread_id.removeprefix('thr_')}"


def thread_of(conversation: str) -> str:
    """Return the id of the thread that is a conversation."""
    return f"thr_{conversation.removeprefix(_CONVERSATION)}"


def part_of(items: Iterable[Item], first_step: int) -> tuple[list[Item], int | None]:
    """Return the output of a response, and its last step if it ends by asking its caller or a person."""
    own, last = cut(items, first_step)
    return [item for item in own if not _is_input(item)], last


def input_of(items: Sequence[Item], first_step: int) -> list[JsonObject]:
    """Return the input of a response: a message, or results of calls and answers to questions, and what steered it."""
    last = part_of(items, first_step)[1]
    end = None if last is None else max(last, first_step)
    given = [item for item in items if first_step - 1 <= item.step and (end is None or item.step < end)]
    return [document for document, item in said_in(given) if _is_input(item) or isinstance(item, ToolResultItem)]


def said_in(items: Sequence[Item]) -> Iterator[tuple[JsonObject, Item]]:
    """Yield all that was said in items in the form of the protocol, with answers to questions as messages."""
    asked = {item.call_id for item in items if isinstance(item, QuestionItem) and isinstance(item.request, AskUser)}
    for item in items:
        if isinstance(item, ToolResultItem) and item.call_id in asked:
            yield _said(f"msg_{item.id.removeprefix('res_')}", item.content), item
        for document in item_documents(item):
            yield document, item


def status_of(run: RunView, last_step: int | None) -> Status:
    """Return the status of a response. One that ends by asking is completed, as a model's that calls functions."""
    if last_step is not None:
        return "completed"
    match run.status:
        case "succeeded":
            return "incomplete" if run.stop_reason == "max_tokens" or run.limit_reached else "completed"
        case "failed":
            return "failed"
        case "canceled":
            return "cancelled"
        case "waiting" if outside_waits(run):
            return "incomplete"
        case _:
            return "in_progress" if run.attempt else "queued"


def response_document(response: ResponseId, found: RecordedRun, *, is_begun: bool = False) -> JsonObject:
    """Return a response as a whole; as it is when it begins, if only that is wanted.

    Raises:
        NotFound: The run has no response that begins with this step.
    """
    run, facts = found.run, found.facts
    first = response.first_step
    if first and not any(asks(item) and item.step == first - 1 for item in found.items):
        raise missing("response", str(response))
    output, last_step = part_of(() if is_begun else found.items, first)
    status: Status = "in_progress" if is_begun else status_of(run, last_step)
    is_over = status not in {"queued", "in_progress"}
    return {
        "id": str(response),
        "object": "response",
        "created_at": int(run.created_at.timestamp()),
        "completed_at": _completed_at(run) if status == "completed" and last_step is None else None,
        "status": status,
        "incomplete_details": {"reason": _incomplete(run)} if status == "incomplete" else None,
        "model": run.agent_id,
        "previous_response_id": _previous(response, found),
        "conversation": {"id": conversation_id(run.thread_id)},
        "instructions": run.instructions,
        "output": [document for item in output for document in item_documents(item)],
        "error": _error(run) if status == "failed" else None,
        "tools": [] if facts.options is None else [_tool(tool) for tool in facts.options.client_tools],
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
        "usage": _usage(found, first, last_step) if is_over else None,
        "max_output_tokens": run.max_output_tokens,
        "max_tool_calls": None,
        "store": not facts.ephemeral,
        "background": False,
        "service_tier": "default",
        "metadata": run.metadata,
        "safety_identifier": None,
        "prompt_cache_key": None,
    }


def page_of(data: list[JsonObject], after: str | None, limit: int) -> JsonObject:
    """Return a page of a list, from behind an item.

    Raises:
        InvalidInput: The list has no such item.
    """
    ids = [item["id"] for item in data]
    if after is not None and after not in ids:
        raise InvalidInput(f"after: the list has no item {after!r:.80}.", field="after")
    rest = data if after is None else data[ids.index(after) + 1 :]
    page = rest[:limit]
    first, last = (page[0]["id"], page[-1]["id"]) if page else (None, None)
    return {"object": "list", "data": page, "first_id": first, "last_id": last, "has_more": len(rest) > limit}


def _tool(tool: ClientTool) -> JsonObject:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description or None,
        "parameters": tool.input_schema,
        "strict": None,
    }


def _completed_at(run: RunView) -> int | None:
    return None if run.finished_at is None else int(run.finished_at.timestamp())


def _previous(response: ResponseId, found: RecordedRun) -> str | None:
    """Return the response that one continues: of the same run, or the last one of the run before."""
    if response.first_step:
        earlier = [item.step for item in found.items if asks(item) and item.step < response.first_step - 1]
        return str(ResponseId(response.run_id, max(earlier, default=-1) + 1))
    before = found.facts.before_run_id
    step = found.facts.before_step
    return None if before is None else str(ResponseId(before, 0 if step is None else step + 1))


def _error(run: RunView) -> JsonObject | None:
    if run.error is None:
        return None
    code = "rate_limit_exceeded" if run.error.kind == "rate_limit" else "server_error"
    return {"code": code, "message": run.error.message}


def item_documents(item: Item, status: str = "completed") -> Iterator[JsonObject]:
    """Yield an item in the form of the protocol; nothing for one that the client does not execute."""
    match item:
        case MessageItem(role="assistant"):
            yield message_document(item.id, item.text, status)
        case MessageItem():
            yield _said(item.id, item.content)
        case ReasoningItem():
            yield reasoning_document(item.id, item.text)
        case ToolCallItem(for_caller=True):
            yield call_document(item, orjson.dumps(item.params).decode(), status)
        case ToolResultItem(for_caller=True):
            yield {
                "type": "function_call_output",
                "id": f"fco_{item.id.removeprefix('res_')}",
                "call_id": call_item_id(item.run_id or "", item.call_id),
                "output": [_input_part(block) for block in item.content],
                "status": "completed",
            }
        case QuestionItem(request=AskUser(question=question, options=options)):
            text = "\n".join([question, *(f"- {option}" for option in options)])
            owner = (item.run_id or "").removeprefix("run_")
            yield message_document(f"msg_{owner}_{item.id.removeprefix('wait_')}", text, status)
        case QuestionItem(request=AskApproval(tool_name=name, params=params)):
            yield {
                "type": "mcp_approval_request",
                "id": approval_id(item.run_id or "", item.id),
                "server_label": "nova",
                "name": name,
                "arguments": orjson.dumps(params).decode(),
            }
        case ToolCallItem() | ToolResultItem() | QuestionItem() | FileItem():
            # No type of the protocol fits what the client does not execute.
            return


def run_of_item(name: str) -> str | None:
    """Return the run that an item's id names, or a call's; None if it is none of the door's."""
    ulid = name.partition("_")[2].partition("_")[0]
    return f"run_{ulid}" if is_ulid(ulid) else None


def approval_id(run_id: str, wait_id: str) -> str:
    """Return the id of a request for permission. It names its run."""
    return f"mcpr_{run_id.removeprefix('run_')}_{wait_id.removeprefix('wait_')}"


def run_and_wait_of(approval: Approval) -> tuple[str, str]:
    """Return the run and the wait of a request for permission that a decision names.

    Raises:
        NotFound: It is the id of none.
    """
    ulid, _, wait = approval.request_id.removeprefix("mcpr_").partition("_")
    if not approval.request_id.startswith("mcpr_") or not is_ulid(ulid) or not is_ulid(wait):
        raise no_approval_request(approval)
    return f"run_{ulid}", f"wait_{wait}"


def no_approval_request(approval: Approval) -> NotFound:
    """Return the error that there is no such request for permission."""
    name = approval.request_id[:80]
    text = f"There is no request for permission {name!r}."
    return NotFound(text, kind="approval request", id=name, field=f"{approval.field}.approval_request_id")


def message_document(item_id: str, text: str | None, status: str) -> JsonObject:
    """Return a message of the agent; without text it has no part yet."""
    content = [] if text is None else [text_part(text)]
    return {"type": "message", "id": item_id, "status": status, "role": "assistant", "content": content}


def reasoning_document(item_id: str, text: str | None) -> JsonObject:
    """Return reasoning. It is a summary: neither OpenAI's clients nor those of Open Responses know another stream."""
    summary = [] if text is None else [summary_part(text)]
    return {"type": "reasoning", "id": item_id, "summary": summary, "content": []}


def call_document(item: ToolCallItem, arguments: str, status: str) -> JsonObject:
    """Return a call of a function of the client. The id of the call names the run that waits for its result."""
    return {
        "type": "function_call",
        "id": f"fc_{item.id.removeprefix('call_')}",
        "call_id": item.id,
        "name": item.tool_name,
        "arguments": arguments,
        "status": status,
    }


def summary_part(text: str) -> JsonObject:
    """Return a part of a summary of reasoning."""
    return {"type": "summary_text", "text": text}


def text_part(text: str) -> JsonObject:
    """Return text of the agent."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _said(item_id: str, content: Sequence[ContentBlock]) -> JsonObject:
    parts = [_input_part(block) for block in content]
    return {"type": "message", "id": item_id, "status": "completed", "role": "user", "content": parts}


def _is_input(item: Item) -> bool:
    is_said = isinstance(item, MessageItem) and item.role == "user"
    return is_said or (isinstance(item, ToolResultItem) and item.for_caller)


def _input_part(block: ContentBlock) -> JsonObject:
    source: Any = block.get("source") or {}
    if source.get("type") == "text":
        source = {"media_type": "text/plain", "data": base64.b64encode(source["data"].encode()).decode()}
    url = source.get("url") or f"data:{source.get('media_type', '')};base64,{source.get('data', '')}"
    match block.get("type"):
        case "image":
            return {"type": "input_image", "image_url": url, "detail": "auto"}
        case "document":
            kind = "file_data" if url.startswith("data:") else "file_url"
            name = {"filename": block["title"]} if block.get("title") else {}
            return {"type": "input_file", kind: url, **name}
        case _:
            return {"type": "input_text", "text": str(block.get("text", ""))}


def _incomplete(run: RunView) -> str:
    if run.status == "waiting":
        # For more results, or for another answer, than this response has.
        return "waiting"
    is_long = run.stop_reason == "max_tokens" or run.limit_reached == "tokens"
    return "max_output_tokens" if is_long else run.limit_reached or "stopped"


def _choice(run: RunView) -> str | JsonObject:
    if run.tool_choice is None or isinstance(run.tool_choice, str):
        return run.tool_choice or "auto"
    return {"type": "function", "name": run.tool_choice.name}


def _format(run: RunView) -> JsonObject:
    if run.output_schema is None:
        return {"type": "text"}
    if run.output_schema == JSON_OBJECT:
        return {"type": "json_object"}
    return {
        "type": "json_schema",
        "name": "answer",
        "description": None,
        "schema": run.output_schema,
        "strict": True,
    }


def _usage(found: RecordedRun, first_step: int, last_step: int | None) -> JsonObject | None:
    """Return the tokens of a response: those of its run up to its end, without those before it."""
    used = usage_of_part(found.run, found.facts, first_step, last_step)
    if used is None:
        return None
    return {
        "input_tokens": used.read,
        "input_tokens_details": {"cached_tokens": used.cached, "cache_write_tokens": used.cache_written},
        "output_tokens": used.written,
        "output_tokens_details": {"reasoning_tokens": used.reasoning},
        "total_tokens": used.read + used.written,
    }
