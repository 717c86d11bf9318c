"""Runs tools and agents of users in child processes: one for each tenant and source, shared by all its calls.

A process starts with the first call, and ends after a time without one. It gets nothing of the worker's environment:
its code comes from its source, and what a call may know with the call. One that does not start rests, as other MCP
servers do.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

import structlog
from mcp import MCPError
from mcp.types import CallToolResult

import nova_workers
from nova_workers.base.errors import EngineFailure, ToolFailure
from nova_workers.base.observability.redaction import hiding
from nova_workers.base.observability.redactor import Redactor
from nova_workers.base.user_code import serving_command
from nova_workers.contracts.agents import Enclosure
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.engine import StdioMcpServer
from nova_workers.contracts.tool_programs import InstalledAgent, ReportProgress, ToolSource
from nova_workers.contracts.user_agents import (
    AgentReply,
    AgentRequest,
    OnNewVersion,
    ProcessLost,
    ReportText,
)
from nova_workers.contracts.user_tools import CALL_CONTEXT, RETIRES, CallContext, ListedTool
from nova_workers.engines.mcp.pool import CallLost, ConnectionPool, Lease, ServerAway

_log = structlog.get_logger(__name__)

_MARGIN_S: Final = 5.0
"""The process itself ends a call at its time limit, and knows where it was. After this it does not answer."""


class McpToolPrograms:
    """Implements `nova_workers.contracts.tool_programs.ToolPrograms`."""

    def __init__(self, pool: ConnectionPool) -> None:
        """Start nothing.

        Args:
            pool: Its own connections, which close with it.
        """
        self._pool = pool
        self._redactors: dict[tuple[str, str], Redactor] = {}
        """What hides secrets in the output of a process: those of all its calls, of whatever run."""

    async def close(self) -> None:
        """End all processes."""
        await self._pool.close()

    async def call(
        self,
        source: ToolSource,
        tool: ListedTool,
        arguments: JsonObject,
        context: CallContext,
        *,
        enclosure: Enclosure | None,
        report: ReportProgress | None,
    ) -> CallToolResult:
        """Return the result of a call. An idempotent tool is called again if its process ended. See `ToolPrograms`."""
        redactor = self._redactor(source, context)
        lease = self._pool.lease(source.name, _program(source, context.tenant_id, enclosure))
        meta: JsonObject = {CALL_CONTEXT: context.model_dump()}

        async def call() -> CallToolResult:
            # A connection takes the redactor of the context in which it starts.
            with hiding(redactor):
                result = await lease.call(tool.name, arguments, report, meta=meta, timeout_s=tool.timeout_s + _MARGIN_S)
            if (result.meta or {}).get(RETIRES):
                lease.retire()
            return result

        try:
            try:
                return await call()
            except CallLost as error:
                if not tool.idempotent:
                    raise
                _log.warning("tool_called_again", tool=tool.name, source=source.name, cause=str(error))
                return await call()
        except CallLost as error:
            raise ToolFailure(
                f"{tool.name} was interrupted: the process of {source.name} ended during the call, or did not answer "
                f"any more. Whether it had an effect is not known.{_last_words(lease)}",
                tool=tool.name,
            ) from error
        except ServerAway as error:
            raise ToolFailure(
                f"{tool.name} was not called: the process of {source.name} does not start. "
                f"{' '.join(error.output[-1:]) or error}",
                tool=tool.name,
            ) from error
        except (MCPError, ConnectionError, TimeoutError) as error:
            raise ToolFailure(f"{tool.name} failed: {error}", tool=tool.name) from error
        finally:
            await lease.release()

    def agent(self, agent: InstalledAgent, context: CallContext, *, enclosure: Enclosure | None) -> McpAgentProgram:
        """Return the function of an agent for one attempt at a turn. See `ToolPrograms`."""
        source = agent.source
        lease = self._pool.lease(source.name, _program(source, context.tenant_id, enclosure))
        return McpAgentProgram(agent, lease, context, self._redactor(source, context))

    def _redactor(self, source: ToolSource, context: CallContext) -> Redactor:
        scope = "" if source.is_shared else context.tenant_id
        redactor = self._redactors.setdefault((scope, source.target), Redactor())
        for name, value in context.secrets.items():
            redactor.learn(name, value)
        return redactor


class McpAgentProgram:
    """Implements `nova_workers.contracts.user_agents.AgentProgram`."""

    def __init__(self, agent: InstalledAgent, lease: Lease, context: CallContext, redactor: Redactor) -> None:
        """Start nothing.

        Args:
            agent: Which function, of which code.
            lease: Of its process.
            context: All that it may know of the run.
            redactor: Hides secrets in the output of the process.
        """
        self.name = agent.name
        self.version = agent.version
        self.on_new_version: OnNewVersion = agent.on_new_version
        self._function = agent.function
        self._lease = lease
        self._context = context
        self._redactor = redactor

    async def ask(self, request: AgentRequest, report: ReportText | None = None) -> AgentReply:
        """Return the answer of the process. See `AgentProgram`."""
        context = None
        if request.agent is not None:
            request, context = request.model_copy(update={"agent": self._function}), self._context
        try:
            # A connection takes the redactor of the context in which it starts.
            with hiding(self._redactor):
                said = await self._lease.ask(request, context, report)
        except CallLost as error:
            raise ProcessLost(f"The process of {self.name} ended.{_last_words(self._lease)}") from error
        except ServerAway as error:
            raise EngineFailure(
                f"The process of {self.name} does not start. {' '.join(error.output[-1:]) or error}",
                kind="unknown",
                retryable=True,
            ) from error
        except ConnectionError as error:
            raise EngineFailure(
                f"The process of {self.name} failed: {error}", kind="unknown", retryable=True
            ) from error
        if said.retires:
            self._lease.retire()
        return said.reply or AgentReply()

    async def close(self) -> None:
        """Release the process."""
        await self._lease.release()


def _program(source: ToolSource, tenant_id: str, enclosure: Enclosure | None) -> StdioMcpServer:
    """Return the program of a source for a tenant: equal ones share a process."""
    package = str(Path(nova_workers.__file__).parent)
    folder = source.folder
    system = () if enclosure is None else (sys.prefix, sys.base_prefix, package)
    python, *arguments = serving_command(source.target)
    return StdioMcpServer(
        python,
        tuple(arguments),
        # In the sandbox its directory is none that it may write to.
        cwd=folder if enclosure is None else None,
        scope="" if source.is_shared else tenant_id,
        enclosure=enclosure,
        readable=(*system, *filter(None, (folder,))),
        writable=() if enclosure is None else tuple(root for root in enclosure.roots if os.path.isdir(root)),
    )


def _last_words(lease: Lease) -> str:
    output = lease.last_output
    return f" Its last words: {output[-1]}" if output else ""
