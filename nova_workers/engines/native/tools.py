"""The tools of a turn: the native ones, by its trust and its options, and those of MCP servers beside them."""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from nova_workers.base.confined import Confinement, PrivateFiles
from nova_workers.base.errors import ToolFailure
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.engine import EngineOptions, ToolCall, TrustLevel
from nova_workers.contracts.native import SEARCH_TOOL, SEARCH_WIRE_NAME, native_tools
from nova_workers.contracts.ports import WebFetcher
from nova_workers.engines.commands import ShellSettings
from nova_workers.engines.mcp.toolbox import ReportProgress, Toolbox, ToolDefinition
from nova_workers.engines.native.files import Files
from nova_workers.engines.native.seam import NativeTool
from nova_workers.engines.native.search import Search
from nova_workers.engines.native.shell import Shell
from nova_workers.engines.native.web import fetch_tool
from nova_workers.engines.tool_schemas import LeftOutTool, missing_note
from nova_workers.engines.turn import ToolOutcome

_FILE_THREADS = 8
_SEARCHES = 4
"""Limit of concurrent searches. Each is a process bound by the disk, so more of them only slow each other down."""


@dataclass(frozen=True, slots=True)
class WebSearchSettings:
    """The provider's own search tool. The provider runs it and fetches the pages.

    Attributes:
        version: Its type in the request. The first version, since later ones require code execution.
        max_uses: Limit of searches per model call.
    """

    version: str = "web_search_20250305"
    max_uses: int = 8


@dataclass(frozen=True, slots=True)
class Toolset:
    """The native tools of one turn. Implements the turn's `Tools`.

    Attributes:
        tools: By name, in a stable order.
        server_tools: Tools that the provider runs, as its request names them.
    """

    tools: Mapping[str, NativeTool]
    server_tools: tuple[JsonObject, ...] = ()

    def definitions(self) -> dict[str, ToolDefinition]:
        """Return the tools' definitions by name."""
        return {name: tool.definition for name, tool in self.tools.items()}

    def offered(self) -> frozenset[str]:
        """Return the contract's names of all offered tools."""
        return frozenset(self.tools) | (frozenset({SEARCH_TOOL}) if self.server_tools else frozenset())

    def only(self, *names: str) -> "Toolset":
        """Return a toolset with only those of the named tools that exist."""
        return Toolset({name: tool for name, tool in self.tools.items() if name in names})

    async def is_idempotent(self, name: str) -> bool:
        """Return whether the tool may be run again after a crash."""
        return name in self.tools and self.tools[name].definition.idempotent

    async def call(self, call: ToolCall) -> ToolOutcome:
        """Run a call.

        Raises:
            ToolFailure: There is no such tool, or it failed.
        """
        tool = self.tools.get(call.tool_name)
        if tool is None:
            raise ToolFailure(f"There is no native tool {call.tool_name!r}.", tool=call.tool_name)
        return await tool.run(call.params)


class NativeTools:
    """Creates the native tools of turns. One object serves a process."""

    def __init__(
        self,
        *,
        fetcher: WebFetcher | None = None,
        shell: ShellSettings | None = None,
        web_search: WebSearchSettings | None = None,
        private: PrivateFiles | None = None,
    ) -> None:
        """Set up what the tools need; for a part that is None the tool is not offered.

        Without `shell` there is no Bash at any trust. Files of `private` are not opened at any trust.
        """
        self._private = private
        self._fetcher = fetcher
        self._shell = shell
        self._web_search = web_search
        self._threads = ThreadPoolExecutor(_FILE_THREADS, thread_name_prefix="files")
        self._searches = asyncio.Semaphore(_SEARCHES)

    def for_turn(self, options: EngineOptions, trust: TrustLevel) -> Toolset:
        """Return the tools of a turn. File tools and Bash need a working directory or other directories."""
        allowed = native_tools(trust, options.native_tools)
        if not allowed:
            return Toolset({})
        tools: list[NativeTool] = []
        roots = (*((options.cwd,) if options.cwd else ()), *options.directories)
        if roots:
            reading = self._confinement(options, (*roots, *options.readable))
            tools += Files(reading, self._threads, writing=self._confinement(options, roots, but=options.kept)).tools()
            tools += Search(reading, self._threads, self._searches, self._private).tools()
        if self._fetcher is not None:
            tools.append(fetch_tool(self._fetcher))
        if self._shell is not None and roots:
            shell = Shell(
                self._shell,
                roots[0],
                roots[1:],
                readable=options.readable,
                max_timeout_s=options.tool_timeout_s,
                enclosure=options.enclosure,
            )
            tools.append(shell.tool())
        by_name = {tool.definition.name: tool for tool in tools if tool.definition.name in allowed}
        return Toolset(by_name, self._server_tools(allowed))

    def close(self) -> None:
        """Shut down the threads without waiting for them."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _confinement(self, options: EngineOptions, roots: Sequence[str], *, but: str | None = None) -> Confinement:
        within = () if options.enclosure is None else options.enclosure.roots
        return Confinement(roots, within=within, beneath=options.readable, but=but, private=self._private)

    def _server_tools(self, allowed: tuple[str, ...]) -> tuple[JsonObject, ...]:
        search = self._web_search
        if search is None or SEARCH_TOOL not in allowed:
            return ()
        return ({"type": search.version, "name": SEARCH_WIRE_NAME, "max_uses": search.max_uses},)


class TurnTools:
    """All tools of a turn. Implements its `Tools`. The toolbox reserves the native names, so names are unique."""

    def __init__(self, native: Toolset, toolbox: Toolbox) -> None:
        self.native = native
        self._toolbox = toolbox
        self._refused: dict[str, LeftOutTool] = {}

    async def connect(self) -> Mapping[str, ToolDefinition]:
        """Connect to the servers, and return all tools by name, in a stable order. Raises what `Toolbox` raises."""
        tools = {**self.native.definitions(), **await self._toolbox.connect()}
        return {name: tool for name, tool in tools.items() if name not in self._refused} if self._refused else tools

    def leave_out(self, name: str, why: str) -> bool:
        """Leave out a tool from now on, which the provider refused. Return whether there was one of this name."""
        if name in self._refused or name not in (self.offered or ()):
            return False
        self._refused[name] = LeftOutTool(name, why)
        return True

    @property
    def left_out(self) -> tuple[LeftOutTool, ...]:
        """Tools that the model does not get: the provider refused them, or would."""
        return (*self._toolbox.left_out, *self._refused.values())

    @property
    def missing(self) -> str | None:
        """A note to the model about tools that are missing; None if there are all."""
        return missing_note(self._toolbox.unreachable, self.left_out)

    @property
    def offered(self) -> tuple[str, ...] | None:
        """Names of all tools; None before the first `connect`."""
        offered = self._toolbox.offered
        if offered is None:
            return None
        return tuple(name for name in (*self.native.definitions(), *offered) if name not in self._refused)

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
        return await self.native.call(call)

    async def close(self) -> None:
        """Disconnect from the servers."""
        await self._toolbox.close()
