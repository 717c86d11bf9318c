"""The fields that Open Responses of 2026-04-24 requires, and of OpenAI's own API those that its SDK's types require."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from openai.types.responses import Response

_RESPONSE: Final = (
    "id object created_at completed_at status incomplete_details model previous_response_id instructions output error "
    "tools tool_choice truncation parallel_tool_calls text top_p presence_penalty frequency_penalty top_logprobs "
    "temperature reasoning usage max_output_tokens max_tool_calls store background service_tier metadata "
    "safety_identifier prompt_cache_key"
).split()
_USAGE: Final = "input_tokens output_tokens total_tokens input_tokens_details output_tokens_details".split()
_ITEMS: Final = {
    "message": "id status role content",
    "function_call": "id call_id name arguments status",
    "function_call_output": "id call_id output status",
    "reasoning": "id summary",
    # OpenAI's own: Open Responses has none for permissions.
    "mcp_approval_request": "id server_label name arguments",
}
_PARTS: Final = {
    "input_text": "text",
    "input_image": "image_url detail",
    "input_file": "",
    "output_text": "text annotations",
    "summary_text": "text",
}
_TEXT: Final = "item_id output_index content_index"
_SUMMARY: Final = "item_id output_index summary_index"
_EVENTS: Final = {
    **{f"response.{name}": "response" for name in ("created", "in_progress", "completed", "failed", "incomplete")},
    "response.output_item.added": "output_index item",
    "response.output_item.done": "output_index item",
    "response.content_part.added": f"{_TEXT} part",
    "response.content_part.done": f"{_TEXT} part",
    "response.output_text.delta": f"{_TEXT} delta",
    "response.output_text.done": f"{_TEXT} text",
    "response.reasoning_summary_part.added": f"{_SUMMARY} part",
    "response.reasoning_summary_part.done": f"{_SUMMARY} part",
    "response.reasoning_summary_text.delta": f"{_SUMMARY} delta",
    "response.reasoning_summary_text.done": f"{_SUMMARY} text",
    "response.function_call_arguments.delta": "item_id output_index delta",
    "response.function_call_arguments.done": "item_id output_index arguments",
}


def check_response(response: Mapping[str, Any]) -> None:
    """Fail for a response that lacks what the contracts require."""
    _check(response, _RESPONSE)
    Response.model_validate(response)
    for tool in response["tools"]:
        _check(tool, ("type", "name", "description", "parameters", "strict"))
    if response["usage"] is not None:
        _check(response["usage"], _USAGE)
    for item in response["output"]:
        check_item(item)


def check_item(item: Mapping[str, Any]) -> None:
    """Fail for an item that lacks what the contracts require."""
    _check(item, _ITEMS[item["type"]].split())
    for part in [*item.get("content", ()), *item.get("summary", ())]:
        _check(part, _PARTS[part["type"]].split())


def check_events(events: Sequence[Mapping[str, Any]]) -> None:
    """Fail for events that lack what the contracts require, or that come in another order than their numbers."""
    for event in events:
        _check(event, ["sequence_number", *_EVENTS[event["type"]].split()])
        if "response" in event:
            check_response(event["response"])
        if "item" in event:
            check_item(event["item"])
    numbers = [event["sequence_number"] for event in events]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] < 2**53


def _check(value: Mapping[str, Any], required: Sequence[str]) -> None:
    lacking = [name for name in required if name not in value]
    assert not lacking, f"{value.get('type') or value.get('object')} lacks {lacking}"
