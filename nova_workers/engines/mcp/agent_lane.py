"""Calls of agents in a process of users' code, on the pipe of its MCP connection.

See `nova_workers.contracts.user_agents` for what the lines say.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import count

import structlog
from pydantic import ValidationError

from nova_workers.contracts.user_agents import (
    AGENT_LINE,
    AgentCall,
    AgentRequest,
    AgentSaid,
    ReportText,
    as_line,
)
from nova_workers.contracts.user_tools import CallContext

_log = structlog.get_logger(__name__)


class UnreadableLine(ConnectionError):
    """A process wrote a line about an agent that is none. Without what is in it, which may be secret."""


@dataclass(frozen=True, slots=True, eq=False)
class _Open:
    """A call that is not answered. Its answer is None if the connection is lost."""

    answer: asyncio.Future[AgentSaid | None]
    report: ReportText | None


class AgentLane:
    """The calls on one connection. Any number of turns may use it concurrently."""

    def __init__(self) -> None:
        """Begin without a process."""
        self._pipe: asyncio.StreamWriter | None = None
        self._numbers = count(1)
        self._open: dict[int, _Open] = {}
        self._ended = "it is not connected"

    def open(self, pipe: asyncio.StreamWriter) -> None:
        """Begin to carry calls to a process, by its standard input."""
        self._pipe = pipe

    def close(self, reason: str) -> None:
        """End all calls, since the process ended or does not answer; there can be no further ones."""
        self._pipe, self._ended = None, reason
        for call in self._open.values():
            if not call.answer.done():
                call.answer.set_result(None)

    def take(self, line: bytes) -> bool:
        """Take a line of the process, if it is about a call. One for a call that is not open is dropped.

        Raises:
            UnreadableLine: It is not what a process of ours writes.
        """
        if not line.startswith(AGENT_LINE):
            return False
        try:
            said = AgentSaid.model_validate_json(line)
        except ValidationError as error:
            (first, *_) = error.errors(include_url=False, include_input=False)
            raise UnreadableLine(f"A line about an agent has {first['loc']!r}: {first['msg']}.") from None
        call = self._open.get(said.agent_call)
        if call is None or call.answer.done():
            return True
        if said.reply is not None:
            call.answer.set_result(said)
        elif call.report is not None:
            try:
                call.report(said.begins, said.text)
            except Exception:
                # The other calls go on; this one's text is part of its answer, too.
                _log.exception("agent.text_not_reported")
        return True

    async def ask(self, request: AgentRequest, context: CallContext | None, report: ReportText | None) -> AgentSaid:
        """Return the line with the answer.

        Args:
            request: The question.
            context: With a request that begins a session.
            report: Receives emitted text as it comes.

        Raises:
            ConnectionError: The process ended, or does not answer.
        """
        number = next(self._numbers)
        call = self._open[number] = _Open(asyncio.get_running_loop().create_future(), report)
        try:
            await self._send(AgentCall(agent_call=number, request=request, context=context))
            said = await call.answer
        except asyncio.CancelledError:
            if self._pipe is not None:
                # Without waiting: a process that does not read would hold the canceled turn.
                self._pipe.write(as_line(AgentCall(agent_call=number)))
            raise
        finally:
            del self._open[number]
        if said is None:
            raise ConnectionError(self._ended)
        return said

    async def _send(self, call: AgentCall) -> None:
        if self._pipe is None:
            raise ConnectionError(self._ended)
        try:
            self._pipe.write(as_line(call))
            await self._pipe.drain()
        except (OSError, RuntimeError) as error:
            raise ConnectionError("the connection closed") from error
