"""What is seen of subagents. The program runs them; their messages carry the id of the call that began them."""

from datetime import UTC, datetime
from typing import Any

from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.engine import EngineCallbacks, ToolAuthorization, ToolCall
from nova_workers.contracts.summaries import tool_use_summary
from nova_workers.engines.claude_agent.names import own_name

__all__ = ["Subagents"]

_NOBODY = EngineCallbacks()


class Subagents:
    """Passes on what the subagents of a turn do, to the callbacks that the caller has for each."""

    def __init__(self, callbacks: EngineCallbacks) -> None:
        self._callbacks = callbacks
        self._of_call: dict[str, EngineCallbacks] = {}

    def begin(self, call_id: str, given: JsonObject) -> None:
        """Note a call that begins a subagent."""
        if self._callbacks.subagent is not None:
            name = str(given.get("subagent_type") or "subagent")
            self._of_call[call_id] = self._callbacks.subagent(call_id, name)

    def show(self, parent_call_id: str, message: JsonObject) -> None:
        """Pass on a message of a subagent."""
        seen = self._of_call.get(parent_call_id, _NOBODY)
        content: Any = message.get("message", {}).get("content")
        if message.get("type") != "assistant" or not isinstance(content, list):
            return
        for block in content:
            match block.get("type"):
                case "text" if seen.on_token is not None:
                    seen.on_token(block["text"])
                case "thinking" if seen.on_reasoning is not None:
                    seen.on_reasoning(block["thinking"])
                case "tool_use" if seen.on_tool_use is not None:
                    name = own_name(block["name"])
                    call = ToolCall(
                        block["id"], name, block["input"], 0, 0, status="running", started_at=datetime.now(UTC)
                    )
                    seen.on_tool_use(call, tool_use_summary(name, block["input"]))
                case _:
                    pass

    async def authorize(self, name: str, given: JsonObject) -> ToolAuthorization:
        """Return whether a subagent may make a call. It answers to the same authority as the turn itself."""
        if self._callbacks.authorize_tool is None:
            return ToolAuthorization(allowed=True)
        return await self._callbacks.authorize_tool(name, given)
