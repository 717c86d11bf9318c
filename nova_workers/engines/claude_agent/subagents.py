"""Reporting of subagents. The program runs them; their messages have the id of the call that started them."""

from datetime import UTC, datetime
from typing import Any

from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.engine import ToolAuthorization, ToolCall, TurnListener
from nova_workers.contracts.summaries import tool_use_summary
from nova_workers.engines.claude_agent.names import own_name

_SILENT = TurnListener()


class Subagents:
    """Reports the activity of a turn's subagents, each to its own listener."""

    def __init__(self, listener: TurnListener) -> None:
        self._listener = listener
        self._of_call: dict[str, TurnListener] = {}

    def begin(self, call_id: str, given: JsonObject) -> None:
        """Record a call that starts a subagent."""
        name = str(given.get("subagent_type") or "subagent")
        self._of_call[call_id] = self._listener.subagent(call_id, name)

    def show(self, parent_call_id: str, message: JsonObject) -> None:
        """Report a message of a subagent."""
        listener = self._of_call.get(parent_call_id, _SILENT)
        content: Any = message.get("message", {}).get("content")
        if message.get("type") != "assistant" or not isinstance(content, list):
            return
        for block in content:
            match block.get("type"):
                case "text":
                    listener.on_token(block["text"])
                case "thinking":
                    listener.on_reasoning(block["thinking"])
                case "tool_use":
                    name = own_name(block["name"])
                    call = ToolCall(
                        block["id"], name, block["input"], 0, 0, status="running", started_at=datetime.now(UTC)
                    )
                    listener.on_tool_use(call, tool_use_summary(name, block["input"]))
                case _:
                    pass

    async def authorize(self, name: str, given: JsonObject) -> ToolAuthorization:
        """Return whether a subagent may make a call. The same rules apply as for the turn itself.

        Raises:
            RunLost: The run may be another worker's.
        """
        verdict = await self._listener.authorize_tool(name, given)
        if verdict.allowed:
            await self._listener.confirm_run()
        return verdict
