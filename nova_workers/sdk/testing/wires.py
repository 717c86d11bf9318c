"""The wire forms in which agents ask the model of a test, and how its answers look in each.

What their providers refuse is in `nova_workers.sdk.testing.strict`.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson
from fakellm.responder import build_response
from fakellm.streaming import build_stream

from nova_workers.sdk.testing.strict import Refused, check_chat, check_messages, check_responses

Json = dict[str, Any]

_CHARS_A_TOKEN: Final = 4


@dataclass(frozen=True, slots=True)
class Wire:
    """A wire form.

    An answer of a script has ``content``, its text, and ``tool_calls``, each with ``name`` and ``arguments``.

    Attributes:
        path: Where requests are posted.
        conversation: The field of a request with the conversation.
        check: Takes body, headers and size in bytes of a request, and raises `Refused` if the provider refuses it.
        error: Returns the body of a refusal.
        whole: Returns the response with an answer to a request.
        events: Returns the same as server-sent events.
    """

    path: str
    conversation: str
    check: Callable[[Json, Mapping[str, str], int], None]
    error: Callable[[Refused], Json]
    whole: Callable[[Json, Json], Json]
    events: Callable[[Json, Json], AsyncIterator[str]]


def _anthropic_error(refused: Refused) -> Json:
    return {"type": "error", "error": {"type": refused.type, "message": refused.message}}


def _openai_error(refused: Refused) -> Json:
    return {"error": {"type": refused.type, "message": refused.message, "param": None, "code": refused.code}}


def _message(answer: Json, body: Json) -> Json:
    return build_response(_rule(answer), body, "anthropic")[1]


def _message_events(answer: Json, body: Json) -> AsyncIterator[str]:
    return build_stream(_rule(answer), body, "anthropic")


def _completion(answer: Json, body: Json) -> Json:
    return build_response(_rule(answer), body, "openai")[1]


async def _completion_events(answer: Json, body: Json) -> AsyncIterator[str]:
    """Yield the chunks of a completion. Those of `fakellm` have no usage."""
    whole = _completion(answer, body)
    head: Json = {**whole, "object": "chat.completion.chunk"}
    usage, (choice,) = head.pop("usage"), head.pop("choices")
    message = choice["message"]
    deltas: list[Json] = [{"role": "assistant", "content": ""}]
    if message["content"]:
        deltas.append({"content": message["content"]})
    for at, call in enumerate(message.get("tool_calls", ())):
        deltas.append({"tool_calls": [{"index": at, **call}]})
    for delta in deltas:
        yield _data({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    yield _data({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]})
    if (body.get("stream_options") or {}).get("include_usage"):
        yield _data({**head, "choices": [], "usage": usage})
    yield "data: [DONE]\n\n"


def _response(answer: Json, body: Json) -> Json:
    output = list(_items(answer))
    read, produced = (len(orjson.dumps(part)) // _CHARS_A_TOKEN for part in (body["input"], output))
    return {
        "id": _id("resp"),
        "object": "response",
        "created_at": int(time.time()),
        "model": body["model"],
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "tools": [],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "output": output,
        "usage": {
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": produced,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": read + produced,
        },
    }


async def _response_events(answer: Json, body: Json) -> AsyncIterator[str]:
    whole = _response(answer, body)
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    events: list[Json] = [{"type": f"response.{name}", "response": begun} for name in ("created", "in_progress")]
    for at, item in enumerate(whole["output"]):
        events += _item_events(at, item)
    events.append({"type": "response.completed", "response": whole})
    for number, event in enumerate(events):
        yield f"event: {event['type']}\n{_data({**event, 'sequence_number': number})}"


def _items(answer: Json) -> Iterator[Json]:
    if answer["content"]:
        part = {"type": "output_text", "text": answer["content"], "annotations": []}
        yield {"type": "message", "id": _id("msg"), "role": "assistant", "content": [part], "status": "completed"}
    for call in answer.get("tool_calls", ()):
        yield {
            "type": "function_call",
            "id": _id("fc"),
            "call_id": _id("call"),
            "name": call["name"],
            "arguments": orjson.dumps(call["arguments"]).decode(),
            "status": "completed",
        }


def _item_events(index: int, item: Json) -> Iterator[Json]:
    at: Json = {"item_id": item["id"], "output_index": index}
    is_text = item["type"] == "message"
    empty: Json = {"content": []} if is_text else {"arguments": ""}
    added = {**item, **empty, "status": "in_progress"}
    yield {"type": "response.output_item.added", "output_index": index, "item": added}
    if is_text:
        (part,) = item["content"]
        at["content_index"] = 0
        yield {"type": "response.content_part.added", **at, "part": {**part, "text": ""}}
        yield {"type": "response.output_text.delta", **at, "delta": part["text"], "logprobs": []}
        yield {"type": "response.output_text.done", **at, "text": part["text"], "logprobs": []}
        yield {"type": "response.content_part.done", **at, "part": part}
    else:
        given = item["arguments"]
        yield {"type": "response.function_call_arguments.delta", **at, "delta": given}
        yield {"type": "response.function_call_arguments.done", **at, "name": item["name"], "arguments": given}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _rule(answer: Json) -> Json:
    return {"name": "test", "respond": answer}


def _data(data: Json) -> str:
    return f"data: {orjson.dumps(data).decode()}\n\n"


def _id(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex[:12]}"


WIRES: Final = (
    Wire("/v1/messages", "messages", check_messages, _anthropic_error, _message, _message_events),
    Wire(
        "/v1/chat/completions",
        "messages",
        lambda body, _, size_bytes: check_chat(body, size_bytes),
        _openai_error,
        _completion,
        _completion_events,
    ),
    Wire(
        "/v1/responses",
        "input",
        lambda body, _, size_bytes: check_responses(body, size_bytes),
        _openai_error,
        _response,
        _response_events,
    ),
)
"""Anthropic's Messages API, and OpenAI's chat completions and Responses API."""
