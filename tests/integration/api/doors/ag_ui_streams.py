"""Streams of the AG-UI door, and what a client makes of them."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from ag_ui.core import Event as AnyEvent
from ag_ui_validate.pytest_plugin import assert_valid_agui
from pydantic import TypeAdapter

from tests.integration.api.conftest import Api
from tests.integration.api.doors.ag_ui_client import AgUiDoor, Event, events_of
from tests.integration.api.doors.door_clients import DoorRequest
from tests.integration.api.manual_worker import ManualWorker, Turn

DOOR: Final = AgUiDoor()
TOOLS: Final = [{"name": "ask", "description": "Asks the page.", "parameters": {"type": "object"}}]
_CLOSED = TypeAdapter[Any](AnyEvent)


async def stream(api: Api, request: DoorRequest, *, goes_on: bool = False) -> list[Event]:
    """Send a request, and return the events of a stream that keeps the protocol.

    Args:
        request: What is sent.
        goes_on: Whether it has results of calls of the run before, which the protocol wants and the rules do not know.
    """
    async with asyncio.timeout(60):
        answer = await request.send(api.http)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = events_of(answer.content)
    assert_valid_agui(list(events), max_warnings=0, severity_overrides={"AGUI207": "off"} if goes_on else None)
    for event in events:
        # The models keep what they do not know.
        assert not _CLOSED.validate_python(event).model_extra, event
    return events


async def begun(api: Api, worker: ManualWorker, request: DoorRequest) -> tuple[str, Turn]:
    """Send a message, and claim its run."""
    run_id = await DOOR.run_id_of(api.http, await DOOR.post(api.http, request))
    run = (await api.http.get(f"/v1/runs/{run_id}")).json()
    return run_id, await worker.claim(run["thread_id"])


def kinds(events: list[Event]) -> list[str]:
    """Return the types of events."""
    return [event["type"] for event in events]


def said(events: list[Event]) -> str:
    """Return the text of the agent."""
    return "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")


def history(events: list[Event]) -> list[dict[str, Any]]:
    """Return the messages that a client makes of events, after the one that it sent."""
    messages: dict[str, dict[str, Any]] = {}
    for event in events:
        match event["type"]:
            case "TEXT_MESSAGE_START":
                messages[event["messageId"]] = {"id": event["messageId"], "role": event["role"], "content": ""}
            case "TEXT_MESSAGE_CONTENT":
                messages[event["messageId"]]["content"] += event["delta"]
            case "TEXT_MESSAGE_END" if "metadata" in event:
                messages[event["messageId"]]["metadata"] = event["metadata"]
            case "TOOL_CALL_START":
                parent = event["parentMessageId"]
                messages.setdefault(parent, {"id": parent, "role": "assistant"})
                function = {"name": event["toolCallName"], "arguments": "{}"}
                call = {"id": event["toolCallId"], "type": "function", "function": function}
                messages[parent].setdefault("toolCalls", []).append(call)
            case "TOOL_CALL_END" if "metadata" in event:
                (call,) = [
                    call
                    for message in messages.values()
                    for call in message.get("toolCalls", ())
                    if call["id"] == event["toolCallId"]
                ]
                call["metadata"] = event["metadata"]
            case "TOOL_CALL_RESULT":
                message = {"id": event["messageId"], "role": "tool", "toolCallId": event["toolCallId"]}
                messages[event["messageId"]] = {**message, "content": event["content"]}
                if "metadata" in event:
                    messages[event["messageId"]]["metadata"] = event["metadata"]
            case _:
                pass
    return list(messages.values())
