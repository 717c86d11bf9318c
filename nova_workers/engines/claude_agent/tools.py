"""The turn's interface to the program's tools: its own, and those behind the bridge."""

from collections.abc import Callable

from nova_workers.base.errors import ToolFailure
from nova_workers.contracts.content import text_block
from nova_workers.contracts.engine import ToolCall
from nova_workers.engines.claude_agent.gate import CallGate
from nova_workers.engines.claude_agent.names import BUILT_IN
from nova_workers.engines.native import Toolset, TurnTools
from nova_workers.engines.turn import ToolOutcome
from nova_workers.engines.turn.output import within_bounds


class ClaudeTools:
    """Implements the turn's `Tools`: the program runs its own tools, and requests those behind the bridge."""

    def __init__(
        self, tools: TurnTools, own: Toolset, gate: CallGate, running: Callable[[], bool], max_output_chars: int
    ) -> None:
        """Take the tools of the turn.

        Args:
            tools: Those behind the bridge.
            own: Our tools with the same names as the program's, for calls that waited and have no program any more.
            gate: Where the program waits for the turn.
            running: Whether the program runs.
            max_output_chars: Longest text of a result.
        """
        self._tools = tools
        self._own = own
        self._gate = gate
        self._running = running
        self._max_output_chars = max_output_chars

    async def is_idempotent(self, name: str) -> bool:
        """Return whether the tool may be run again after a crash; never for the program's own tools."""
        return name not in BUILT_IN and await self._tools.is_idempotent(name)

    async def call(self, call: ToolCall) -> ToolOutcome:
        """Let the program make the call, or make it here if an earlier attempt left it open.

        Raises:
            ToolFailure: Its message goes to the model.
        """
        if not self._running():
            return await (self._own.call(call) if call.tool_name in BUILT_IN else self._tools.call(call))
        self._gate.let_through(call.id)
        news = await self._gate.news(call.id)
        if isinstance(news, ToolOutcome):
            return news
        answer = ToolOutcome((text_block("The call was stopped."),), failed=True)
        try:
            answer = await self._tools.call(call)
        except ToolFailure as failure:
            answer = ToolOutcome((text_block(failure.message),), failed=True)
            raise
        except Exception as error:
            # This only answers the program; the turn records the same error in the ledger.
            answer = ToolOutcome(
                (text_block(f"{call.tool_name} failed: {type(error).__name__}: {error}"),), failed=True
            )
            raise
        finally:
            self._gate.answer(call.id, within_bounds(answer, self._max_output_chars))
        return answer
