"""Authorization and reporting of the provider's own web search, which is not a call of the turn's tools."""

from dataclasses import replace

from nova_workers.contracts.content import ContentBlock
from nova_workers.contracts.engine import ForwardingListener, StepRecord, StepVerdict, ToolCall, TurnListener
from nova_workers.contracts.native import SEARCH_TOOL, SEARCH_WIRE_NAME
from nova_workers.contracts.summaries import tool_use_summary
from nova_workers.engines.native import Toolset

__all__ = ["AnnouncedSearches", "permitted"]


async def permitted(native: Toolset, listener: TurnListener) -> Toolset:
    """Return the tools, without the provider's search if the caller does not allow it.

    Authorization is requested once and without a query, since the provider chooses queries and runs them itself. So a
    search that needs a person's approval is not offered either.

    Raises:
        RunLost: The listener raised it.
    """
    if not native.server_tools:
        return native
    verdict = await listener.authorize_tool(SEARCH_TOOL, {})
    return native if verdict.allowed else replace(native, server_tools=())


class AnnouncedSearches(ForwardingListener):
    """Reports searches like other calls, once their response is complete."""

    async def on_step(self, step: StepRecord) -> StepVerdict:
        """Report the searches of the step before it is committed."""
        for message in step.messages:
            for block in message.content:
                if block.get("type") == "server_tool_use" and block.get("name") == SEARCH_WIRE_NAME:
                    self._announce(_call(block, step.index))
        return await self._to.on_step(step)

    def _announce(self, call: ToolCall) -> None:
        summary = tool_use_summary(call.tool_name, call.params)
        self._to.on_tool_use(call, summary)
        self._to.on_tool_use_summary(summary)


def _call(block: ContentBlock, step: int) -> ToolCall:
    return ToolCall(block["id"], SEARCH_TOOL, block["input"], step, sequence=0, status="completed")
