"""Publishes a subagent's events: those of an agent, with the subagent's name."""

from __future__ import annotations

from typing import Literal

from nova_workers.contracts import events as live
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.engine import ToolAuthorization, ToolCall, TurnListener
from nova_workers.contracts.thread_state import state_change
from nova_workers.domain.streams.rules.publisher import RunEvents


class SubagentEvents(TurnListener):
    """The listener of a nested turn. Its steps are not in the journal; only the call that runs it is."""

    def __init__(self, events: RunEvents, agent: str, turn: TurnListener) -> None:
        """Keep the run's events, the subagent's name, and the listener of the turn, which authorizes its calls."""
        self._events = events
        self._agent = agent
        self._turn = turn

    def on_assistant_message(self, text: str) -> None:
        """Publish narration."""
        self._events.emit(live.AssistantMessage(text=text, agent=self._agent))

    def on_token(self, text: str) -> None:
        """Publish a piece of the subagent's answer."""
        self._events.emit(live.Token(text=text, agent=self._agent))

    def on_reasoning(self, text: str) -> None:
        """Publish a piece of thinking."""
        self._events.emit(live.Reasoning(text=text, agent=self._agent))

    def on_restart(self) -> None:
        """Publish that the streamed part of the response is void."""
        self._events.emit(live.Restart(agent=self._agent))

    def on_tool_use(self, call: ToolCall, summary: str) -> None:
        """Publish that a call begins."""
        self._publish(call, summary, "started")

    def on_tool_progress(self, call: ToolCall, summary: str) -> None:
        """Publish the progress of a call."""
        self._publish(call, summary, "running")

    async def on_tool_result(self, call: ToolCall, summary: str) -> None:
        """Publish that a call ended."""
        self._publish(call, summary, call.status if call.status in ("completed", "interrupted") else "failed")
        change = state_change(call, agent=self._agent)
        if change is not None:
            self._events.emit(change)

    async def authorize_tool(self, tool_name: str, params: JsonObject) -> ToolAuthorization:
        """Authorize a call like one of the turn itself."""
        return await self._turn.authorize_tool(tool_name, params)

    def on_provider_call(self, tool_name: str) -> None:
        """Count a call of a tool that the provider runs as one of the turn itself."""
        self._turn.on_provider_call(tool_name)

    async def confirm_run(self) -> None:
        """Confirm the run of the turn."""
        await self._turn.confirm_run()

    def _publish(
        self,
        call: ToolCall,
        summary: str,
        status: Literal["started", "running", "completed", "failed", "interrupted"],
    ) -> None:
        self._events.emit(
            live.ToolStatus(
                tool_call_id=call.id, tool_name=call.tool_name, status=status, summary=summary, agent=self._agent
            )
        )
