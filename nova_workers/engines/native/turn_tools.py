"""All tools of a turn: the native ones, then those of MCP servers."""

from collections.abc import Mapping

from nova_workers.contracts.engine import ToolCall
from nova_workers.engines.mcp.toolbox import ReportProgress, Toolbox, ToolDefinition
from nova_workers.engines.native.tools import Toolset
from nova_workers.engines.spans import tool_span
from nova_workers.engines.turn import ToolOutcome

__all__ = ["TurnTools"]


class TurnTools:
    """Implements the turn's `Tools` over both. The toolbox reserves the native names, so names are unique."""

    def __init__(self, native: Toolset, toolbox: Toolbox) -> None:
        self.native = native
        self._toolbox = toolbox

    async def connect(self) -> Mapping[str, ToolDefinition]:
        """Connect to the servers, and return all tools by name, in a stable order. Raises what `Toolbox` raises."""
        return {**self.native.definitions(), **await self._toolbox.connect()}

    @property
    def offered(self) -> tuple[str, ...] | None:
        """Names of all tools; None before the first `connect`."""
        offered = self._toolbox.offered
        return None if offered is None else (*self.native.definitions(), *offered)

    @property
    def unreachable(self) -> tuple[str, ...]:
        """Names of the servers that did not answer."""
        return self._toolbox.unreachable

    async def is_idempotent(self, name: str) -> bool:
        """Return whether the tool declares that it may be run again."""
        owner = self.native if name in self.native.tools else self._toolbox
        return await owner.is_idempotent(name)

    def reads_only(self, name: str) -> bool:
        """Return whether the tool is known to change nothing."""
        native = self.native.tools.get(name)
        return self._toolbox.reads_only(name) if native is None else native.definition.read_only

    async def call(self, call: ToolCall, report_progress: ReportProgress | None = None) -> ToolOutcome:
        """Run a call. Raises `ToolFailure`."""
        if call.tool_name not in self.native.tools:
            return await self._toolbox.call(call, report_progress)
        with tool_span(call):
            return await self.native.call(call)

    async def close(self) -> None:
        """Disconnect from the servers."""
        await self._toolbox.close()
