"""One in-process MCP server with all tools of the turn that the program does not have itself.

Servers that are child processes or behind a URL are bridged too, and not passed to the program: so their headers and
environments stay in this process, their connections are shared as with any other engine, and failures give the same
tool errors. The turn runs its own calls, with its timeouts and authorization, and the bridge only transports requests
and results. Calls of subagents are run by the bridge.
"""

from typing import Any

from mcp.server import Server
from mcp.types import CallToolRequestParams

from nova_workers.base.errors import ToolFailure
from nova_workers.contracts.content import JsonObject, text_block
from nova_workers.contracts.engine import ToolCall
from nova_workers.engines.claude_agent.gate import CallGate
from nova_workers.engines.native import TurnTools
from nova_workers.engines.programs.bridge import serve_tools
from nova_workers.engines.turn import ToolOutcome, tool_span
from nova_workers.engines.turn.calls import without_deferral
from nova_workers.engines.turn.output import within_bounds

_CALL_ID = "claudecode/toolUseId"
"""The field of a request's metadata with the id of the model's call."""
_MAX_RESULT = "anthropic/maxResultSizeChars"
"""Where a tool says how long its results may be before the program keeps them in a file and shows a preview."""
_MOST_RESULT_CHARS = 500_000
"""Most that the program takes there; without it, 50,000. The turn has cut each result already, and the model is to see
what the ledger has."""


def bridge_server(tools: TurnTools, gate: CallGate, max_output_chars: int) -> Server[Any]:
    """Return the server.

    Args:
        tools: The tools that it serves.
        gate: Where the calls of the turn itself are asked for.
        max_output_chars: Limit of a result's text for a subagent.
    """

    async def call(params: CallToolRequestParams) -> ToolOutcome:
        meta: dict[str, Any] = dict(params.meta or {})
        call_id, given = str(meta[_CALL_ID]), params.arguments or {}
        if gate.is_ours(call_id):
            return await gate.ask(call_id, given)
        return within_bounds(await _carry_out(tools, call_id, params.name, given), max_output_chars)

    return serve_tools(tools.connect, call, meta={_MAX_RESULT: _MOST_RESULT_CHARS})


async def _carry_out(tools: TurnTools, call_id: str, name: str, given: JsonObject) -> ToolOutcome:
    try:
        # As `AllowedTools` does: tools recognize a call of the turn's journal by its id.
        own = ToolCall(f"subagent-{call_id}", name, given, step=0, sequence=0, status="running")
        with tool_span(own) as span:
            outcome = without_deferral(await tools.call(own))
            span.end(outcome)
            return outcome
    except ToolFailure as failure:
        return ToolOutcome((text_block(failure.message),), failed=True)
