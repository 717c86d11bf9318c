"""What is seen of a subagent while it works: the same events as of the agent, with the subagent's name on them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nova_workers.contracts import events as live
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.engine import EngineCallbacks, ToolAuthorization, ToolCall

__all__ = ["subagent_callbacks"]

Emit = Callable[[live.Event], object]


def subagent_callbacks(
    emit: Emit, agent: str, authorize: Callable[[str, JsonObject], Awaitable[ToolAuthorization]]
) -> EngineCallbacks:
    """Return the callbacks of a nested turn. Nothing of it is journalled: the call that runs it is, as a whole."""

    def tell(call: ToolCall, summary: str, status: str) -> None:
        emit(
            live.ToolStatus.model_validate(
                {
                    "tool_call_id": call.id,
                    "tool_name": call.tool_name,
                    "status": status,
                    "summary": summary,
                    "agent": agent,
                }
            )
        )

    async def on_tool_result(call: ToolCall, summary: str) -> None:
        tell(call, summary, call.status if call.status in ("completed", "interrupted") else "failed")

    return EngineCallbacks(
        on_assistant_message=lambda text: _ignore(emit(live.AssistantMessage(text=text, agent=agent))),
        on_tool_use=lambda call, summary: tell(call, summary, "started"),
        on_tool_progress=lambda call, summary: tell(call, summary, "running"),
        on_token=lambda text: _ignore(emit(live.Token(text=text, agent=agent))),
        on_reasoning=lambda text: _ignore(emit(live.Reasoning(text=text, agent=agent))),
        on_restart=lambda: _ignore(emit(live.Restart(agent=agent))),
        on_tool_result=on_tool_result,
        authorize_tool=authorize,
    )


def _ignore(_: object) -> None:
    return None
