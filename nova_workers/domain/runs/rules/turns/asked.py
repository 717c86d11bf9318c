"""Rebuilds from the ledger what a model call was asked with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import orjson

from nova_workers.base.errors import existing
from nova_workers.contracts.content import ContentBlock, JsonObject, Message, text_block
from nova_workers.contracts.event_context import EventContext
from nova_workers.contracts.http.overview.requests import (
    ModelRequestView,
    RequestMessage,
    RequestSection,
    RequestTool,
    Wire,
)
from nova_workers.contracts.refusals import with_notes
from nova_workers.contracts.usage import CHARS_PER_TOKEN
from nova_workers.domain.prompts.rules import event_words
from nova_workers.domain.runs.rules.turns.past import as_past
from nova_workers.domain.runs.sql.requests import FoundCall, TurnMessage, find_call, load_parts, load_turn_messages
from nova_workers.domain.threads.rules.transcript import conversation
from nova_workers.domain.threads.sql.history import load_history_turns
from nova_workers.ledger.database import Connection


async def load_request(connection: Connection, tenant_id: str, run_id: str, step: int) -> ModelRequestView:
    """Return the request of a step's model call: all of its messages, the newest first; and its response.

    Content that the provider refused in the turn is shown as its note, also in calls before the refusal.

    Raises:
        NotFound: There is no such run, or it has no such step.
    """
    call = existing(await find_call(connection, tenant_id, run_id, step), "step", step)
    form: JsonObject = call.form or {}
    named = [*(part for _, part in form.get("sections", ())), *filter(None, (form.get("tools"),))]
    parts = await load_parts(connection, tenant_id, named) if named else {}
    system = [_section(tag, parts[part]) for tag, part in form.get("sections", ()) if part in parts]
    tools = [_tool(tool) for tool in parts.get(form.get("tools") or "", ())]
    before = () if call.parent_turn_id is None else await load_history_turns(connection, tenant_id, call.parent_turn_id)
    history = conversation([as_past(turn) for turn in before])
    turn = await load_turn_messages(connection, tenant_id, call, step)
    asked = [message for message in turn if message.step is None or message.step < step]
    messages = _views(
        [(None, message) for message in history] + _noted(asked, call),
    )
    response = _views(_noted([message for message in turn if message.step == step], call), first=len(messages))
    return ModelRequestView(
        run_id=run_id,
        turn_id=call.turn_id,
        step=step,
        engine=call.engine,
        wire=_wire(call),
        requested_at=call.requested_at,
        first_token_ms=call.first_token_ms,
        parameters=form.get("parameters", {}),
        system=system,
        system_tokens=sum(section.tokens for section in system),
        tools=tools,
        tools_tokens=sum(tool.tokens for tool in tools),
        message_count=len(messages),
        messages_tokens=sum(message.tokens for message in messages),
        messages=messages[::-1],
        response=response,
    )


def _wire(call: FoundCall) -> Wire:
    if call.form is not None:
        return "recorded"
    return "not_given" if call.is_recorded and not call.has_form else "not_recorded"


def _section(tag: str | None, text: str) -> RequestSection:
    return RequestSection(tag=tag, text=text, tokens=_tokens(len(text)))


def _tool(tool: JsonObject) -> RequestTool:
    return RequestTool(
        name=str(tool.get("name")),
        description=tool.get("description"),
        input_schema=tool.get("input_schema"),
        tokens=_tokens(len(orjson.dumps(tool))),
    )


def _noted(messages: Sequence[TurnMessage], call: FoundCall) -> list[tuple[int | None, Message]]:
    """Return messages of the turn as the engine sends them, each with its step."""
    sent = with_notes([Message(message.role, _content(message)) for message in messages], call.refused)
    return [(message.step, noted) for message, noted in zip(messages, sent, strict=True)]


def _content(message: TurnMessage) -> tuple[ContentBlock, ...]:
    if message.context is None:
        return tuple(message.content)
    return (text_block(event_words(EventContext.model_validate(message.context))), *message.content)


def _views(messages: Sequence[tuple[int | None, Message]], *, first: int = 0) -> list[RequestMessage]:
    views: list[RequestMessage] = []
    for index, (step, message) in enumerate(messages, first):
        content = [_without_data(block) for block in message.content]
        tokens = _tokens(len(orjson.dumps(content)))
        views.append(RequestMessage(index=index, step=step, role=message.role, content=content, tokens=tokens))
    return views


def _without_data(value: Any) -> Any:
    """Return content without the base64 data of its images and documents."""
    if isinstance(value, list):
        return [_without_data(item) for item in cast(list[Any], value)]
    if not isinstance(value, dict):
        return value
    block = cast(JsonObject, value)
    if block.get("type") == "base64" and "data" in block:
        return {name: item for name, item in block.items() if name != "data"}
    if block.get("type") in ("image", "document", "tool_result"):
        return {name: _without_data(item) for name, item in block.items()}
    return block


def _tokens(chars: int) -> int:
    return -(-chars // CHARS_PER_TOKEN)
