"""The provider's own search, which no call of the turn's tools goes through: who may use it, and who sees it."""

from dataclasses import replace

from nova_workers.contracts.content import ContentBlock
from nova_workers.contracts.engine import EngineCallbacks, StepRecord, StepVerdict, ToolCall
from nova_workers.contracts.native import SEARCH_TOOL, SEARCH_WIRE_NAME
from nova_workers.contracts.summaries import tool_use_summary
from nova_workers.engines.native import Toolset

__all__ = ["announcing", "permitted"]


async def permitted(native: Toolset, callbacks: EngineCallbacks) -> Toolset:
    """Return the tools, without the provider's where the caller does not let a search through.

    It is asked once, without a query: that is known only where nobody can be asked. So a search that needs a person's
    permission is not offered either.

    Raises:
        RunLost: The callback said so.
    """
    if not native.server_tools or callbacks.authorize_tool is None:
        return native
    verdict = await callbacks.authorize_tool(SEARCH_TOOL, {})
    return native if verdict.allowed else replace(native, server_tools=())


def announcing(callbacks: EngineCallbacks) -> EngineCallbacks:
    """Return callbacks by which searches are told of as other calls are, once their response is whole."""
    if callbacks.on_tool_use is None and callbacks.on_tool_use_summary is None:
        return callbacks

    async def on_step(step: StepRecord) -> StepVerdict:
        for message in step.messages:
            for block in message.content:
                if block.get("type") == "server_tool_use" and block.get("name") == SEARCH_WIRE_NAME:
                    _tell(callbacks, _call(block, step.index))
        return "continue" if callbacks.on_step is None else await callbacks.on_step(step)

    return replace(callbacks, on_step=on_step)


def _tell(callbacks: EngineCallbacks, call: ToolCall) -> None:
    summary = tool_use_summary(call.tool_name, call.params)
    if callbacks.on_tool_use is not None:
        callbacks.on_tool_use(call, summary)
    if callbacks.on_tool_use_summary is not None:
        callbacks.on_tool_use_summary(summary)


def _call(block: ContentBlock, step: int) -> ToolCall:
    return ToolCall(block["id"], SEARCH_TOOL, block["input"], step, sequence=0, status="completed")
