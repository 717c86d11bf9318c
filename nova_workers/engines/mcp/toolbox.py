"""The MCP tools of one turn, under the names that the model sees."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import structlog
from mcp import MCPError
from mcp.types import CallToolResult, Tool
from pydantic import ValidationError

from nova_workers.base.errors import ToolFailure
from nova_workers.base.observability.addresses import bare_addresses
from nova_workers.base.observability.redaction import hide
from nova_workers.contracts.content import JsonObject, storable
from nova_workers.contracts.engine import DEFERRAL, InProcessMcpServer, McpServer, ToolCall
from nova_workers.contracts.native import TAKEN_NAMES
from nova_workers.contracts.steps import ToolServerAway
from nova_workers.contracts.summaries import one_line
from nova_workers.engines.mcp.blocks import from_mcp
from nova_workers.engines.mcp.connection import OnProgress
from nova_workers.engines.mcp.listings import declared_schema
from nova_workers.engines.mcp.pool import CallLost, ConnectionPool, Lease, ServerAway
from nova_workers.engines.tool_schemas import (
    ANTHROPIC,
    LeftOutTool,
    RepairedSchema,
    ToolLimits,
    Unrepairable,
    repaired,
)
from nova_workers.engines.turn import ToolOutcome

_log = structlog.get_logger(__name__)

ReportAway = Callable[[tuple[ToolServerAway, ...]], Awaitable[None]]
"""Receives the servers that do not answer, once all were tried. Not called without servers of other processes."""
ReportProgress = Callable[[ToolCall, str], None]
"""Receives a running call and its progress in one line."""

_PROGRESS_EVERY_S = 0.25
"""Shortest time between two reports of a call's progress; a server may send a thousand a second."""
_NOT_ALLOWED_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_REASON_CHARS = 500
_MAX_NAME_CHARS = 117
"""A provider allows 128; Claude Code prepends 11, and names must be the same with all engines."""


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool's definition for the model."""

    name: str
    description: str
    input_schema: JsonObject
    idempotent: bool
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class _Entry:
    definition: ToolDefinition
    lease: Lease
    tool: str
    schema: RepairedSchema

    @property
    def is_ours(self) -> bool:
        """Whether the tool is the fleet's own."""
        return isinstance(self.lease.server, InProcessMcpServer)

    @property
    def size_bytes(self) -> int:
        """The length of the definition in a request."""
        return self.schema.size_bytes + len(self.definition.description) + len(self.definition.name)


class Toolbox:
    """Implements the turn's `Tools` over MCP servers.

    A tool keeps its own name unless that is reserved or an earlier server's tool has it; then it becomes
    ``<server>__<tool>``, as do all tools of a server that is `qualified`. If that name is taken too, a number is
    appended. Connects at first use, or at `connect`; must be closed.

    If a server does not answer, the turn continues without its tools. A tool whose schema the provider would refuse
    gets one that it takes, and its calls get back their own keys; one for which there is no such schema is left out, as
    is what is too much for the provider.
    """

    def __init__(
        self,
        servers: Mapping[str, McpServer],
        *,
        pool: ConnectionPool,
        limits: ToolLimits = ANTHROPIC,
        report_progress: ReportProgress | None = None,
        report_away: ReportAway | None = None,
    ) -> None:
        """Connect to nothing yet.

        Args:
            servers: By the name that the model may see.
            pool: The process's connections.
            limits: What the model's provider takes.
            report_progress: Receives the progress that servers report.
            report_away: Receives the servers that do not answer.
        """
        self._report_progress = report_progress
        self._report_away = report_away
        self._leases = [pool.lease(name, server) for name, server in servers.items()]
        self._entries: dict[str, _Entry] | None = None
        self._away: tuple[ToolServerAway, ...] = ()
        self._left_out: tuple[LeftOutTool, ...] = ()
        self._limits = limits
        self._connecting = asyncio.Lock()

    @property
    def unreachable(self) -> tuple[str, ...]:
        """Names of the servers that did not answer, once connected."""
        return tuple(server.name for server in self._away)

    @property
    def away(self) -> tuple[ToolServerAway, ...]:
        """The servers that did not answer, once connected."""
        return self._away

    @property
    def left_out(self) -> tuple[LeftOutTool, ...]:
        """Tools that the model does not get, once connected."""
        return self._left_out

    @property
    def offered(self) -> tuple[str, ...] | None:
        """Names of all tools; None before the first `connect`."""
        return None if self._entries is None else tuple(self._entries)

    async def connect(self) -> Mapping[str, ToolDefinition]:
        """Connect to every server that answers, and return the tools by name, in a stable order."""
        async with self._connecting:
            if self._entries is None:
                self._entries = await self._open()
        return {name: entry.definition for name, entry in self._entries.items()}

    async def close(self) -> None:
        """Release every server."""
        for lease in self._leases:
            await lease.release()

    async def is_idempotent(self, name: str) -> bool:
        """Return whether the tool declares that it may be run again."""
        tools = await self.connect()
        return name in tools and tools[name].idempotent

    def reads_only(self, name: str) -> bool:
        """Return whether the tool declares that it changes nothing. False for a tool that is not known yet."""
        entry = (self._entries or {}).get(name)
        return entry is not None and entry.definition.read_only

    async def call(self, call: ToolCall, report_progress: ReportProgress | None = None) -> ToolOutcome:
        """Run a call.

        Args:
            report_progress: Receives its progress, instead of the toolbox's own callback.

        Raises:
            ToolFailure: There is no such tool, or its server failed.
        """
        await self.connect()
        entry = (self._entries or {}).get(call.tool_name)
        if entry is None:
            raise ToolFailure(self._unknown(call.tool_name), tool=call.tool_name)
        on_progress = _progress(call, report_progress or self._report_progress)
        arguments = entry.schema.arguments(call.params)
        try:
            result = await entry.lease.call(entry.tool, arguments, on_progress, call_id=call.id)
        except (MCPError, ConnectionError, TimeoutError) as error:
            # The address or the command may contain a secret that the model must not see.
            problem = bare_addresses(hide(f"{call.tool_name} failed: {error}"))
            if isinstance(error, CallLost | TimeoutError):
                problem = f"{problem.rstrip('.')}. Whether it had an effect is not known."
            raise ToolFailure(problem, tool=call.tool_name) from error
        except ValidationError as error:
            raise ToolFailure(_not_mcp(call.tool_name, error), tool=call.tool_name) from error
        return self._outcome(result, ours=entry.is_ours)

    def _unknown(self, name: str) -> str:
        known = ", ".join(self._entries or {}) or "none"
        away = f" These servers do not answer: {', '.join(self.unreachable)}." if self._away else ""
        return f"There is no tool {name!r}. Available: {known}.{away}"

    def _outcome(self, result: CallToolResult, *, ours: bool) -> ToolOutcome:
        # Only an in-process server may defer: an external one must not suspend a turn.
        deferral = (result.meta or {}).get(DEFERRAL) if ours else None
        if deferral is not None:
            return ToolOutcome((), deferral=deferral)
        return ToolOutcome(from_mcp(result), failed=result.is_error)

    async def _open(self) -> dict[str, _Entry]:
        listings = await asyncio.gather(*(_listing(lease) for lease in self._leases))
        entries: list[_Entry] = []
        left_out: list[LeftOutTool] = []
        taken = set(TAKEN_NAMES)
        for lease, tools in zip(self._leases, listings, strict=True):
            for tool in () if isinstance(tools, ToolServerAway) else tools:
                name = _free_name(lease, tool.name, taken)
                taken.add(name)
                try:
                    schema = repaired(declared_schema(tool), self._limits)
                except Unrepairable as error:
                    left_out.append(LeftOutTool(name, str(error)))
                else:
                    entries.append(_Entry(_define(name, tool, schema, self._limits), lease, tool.name, schema))
        too_much = _too_much(entries, self._limits)
        left_out += too_much.values()
        for tool in left_out:
            _log.warning("tool_left_out", tool=tool.name, cause=tool.why)
        self._left_out = tuple(left_out)
        self._away = tuple(tools for tools in listings if isinstance(tools, ToolServerAway))
        external = any(not isinstance(lease.server, InProcessMcpServer) for lease in self._leases)
        if external and self._report_away is not None:
            await self._report_away(self._away)
        return {entry.definition.name: entry for entry in entries if entry.definition.name not in too_much}


def _not_mcp(tool: str, error: ValidationError) -> str:
    """Return the message about a result that the MCP library cannot read, such as one with content of another kind."""
    first = error.errors(include_input=False, include_url=False)[0]
    place = ".".join(str(step) for step in first["loc"])
    why = one_line(f"{place}: {first['msg']}")
    return (
        f"{tool} was called, and its result is not of a form that MCP has, so it was left out ({why}). "
        "Whether the call had an effect is not known."
    )


def _free_name(lease: Lease, tool: str, taken: Collection[str]) -> str:
    name = _clean(tool)
    qualified = not isinstance(lease.server, InProcessMcpServer) and lease.server.qualified
    if name and name not in taken and not qualified:
        return name
    whole = name = _clean(f"{lease.name}__{tool}")
    number = 1
    while name in taken:
        number += 1
        suffix = f"_{number}"
        name = whole[: _MAX_NAME_CHARS - len(suffix)] + suffix
    return name


def _clean(name: str) -> str:
    return _NOT_ALLOWED_IN_NAMES.sub("_", name)[:_MAX_NAME_CHARS]


def _too_much(entries: Sequence[_Entry], limits: ToolLimits) -> dict[str, LeftOutTool]:
    """Return the tools that are more than the provider takes, by name. Those of the fleet's own are the last to go."""
    found: dict[str, LeftOutTool] = {}
    total_bytes = kept = 0
    for entry in sorted(entries, key=lambda entry: not entry.is_ours):
        name = entry.definition.name
        if limits.max_tools is not None and kept >= limits.max_tools:
            found[name] = LeftOutTool(name, f"the model provider takes at most {limits.max_tools} tools")
        elif total_bytes + entry.size_bytes > limits.max_total_bytes:
            found[name] = LeftOutTool(name, f"all tools together are longer than {limits.max_total_bytes:,} bytes")
        else:
            kept += 1
            total_bytes += entry.size_bytes
    return found


def _define(name: str, tool: Tool, schema: RepairedSchema, limits: ToolLimits) -> ToolDefinition:
    hints = tool.annotations
    read_only = hints is not None and bool(hints.read_only_hint)
    return ToolDefinition(
        name=name,
        # A server's description may have characters that no request can carry.
        description=storable(tool.description or "")[: limits.max_description_chars],
        input_schema=schema.schema,
        idempotent=read_only or (hints is not None and bool(hints.idempotent_hint)),
        read_only=read_only,
    )


async def _listing(lease: Lease) -> list[Tool] | ToolServerAway:
    try:
        return await lease.list_tools()
    except ConnectionError as error:
        _log.warning("mcp_server_unreachable", server=lease.name, cause=str(error))
        output = error.output if isinstance(error, ServerAway) else ()
        # The address or the command may contain a secret.
        return ToolServerAway(lease.name, storable(bare_addresses(hide(str(error))))[:_MAX_REASON_CHARS], output)


def _progress(call: ToolCall, report: ReportProgress | None) -> OnProgress | None:
    if report is None:
        return None
    reported_at_s = float("-inf")

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        nonlocal reported_at_s
        now_s = time.monotonic()
        if now_s - reported_at_s < _PROGRESS_EVERY_S and progress != total:
            return
        reported_at_s = now_s
        share = f"{progress:g} of {total:g}" if total else f"{progress:g}"
        report(call, one_line(f"{call.tool_name}: {share} {message or ''}"))

    return on_progress
