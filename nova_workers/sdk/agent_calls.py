"""Answers what a worker asks of agents, by lines beside the messages of MCP."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable

from pydantic_core import PydanticSerializationError

from nova_workers.contracts.user_agents import AGENT_LINE, AgentCall, AgentReply, AgentRequest, AgentSaid, as_line
from nova_workers.contracts.user_tools import CallContext
from nova_workers.sdk.execution import Execution
from nova_workers.sdk.sessions import Sessions

Write = Callable[[bytes], None]
"""Writes a line to the worker."""


class AgentCalls:
    """The open calls of a process. Used on the loop of the protocol."""

    def __init__(self, sessions: Sessions, execution: Execution, write: Write) -> None:
        self._sessions = sessions
        self._execution = execution
        self._write = write
        self._open: dict[int, asyncio.Task[None]] = {}

    def take(self, line: bytes) -> bool:
        """Take a line of the worker, if it is about an agent."""
        if not line.startswith(AGENT_LINE):
            return False
        call = AgentCall.model_validate_json(line)
        if call.request is not None:
            answering = self._answer(call.agent_call, call.request, call.context)
            self._open[call.agent_call] = asyncio.create_task(answering, name=f"agent-call-{call.agent_call}")
        elif (canceled := self._open.get(call.agent_call)) is not None:
            canceled.cancel()
        return True

    async def _answer(self, number: int, request: AgentRequest, context: CallContext | None) -> None:
        try:
            reply = await self._sessions.answer(request, context, _Emitted(number, self._write).emit)
            line = self._line(number, reply)
        except Exception as error:
            # The head of a call: the worker waits for an answer, and the other calls go on.
            traceback.print_exception(error)
            line = self._line(number, AgentReply(problem=f"{type(error).__name__}: {error}"))
        finally:
            del self._open[number]
        self._write(line)

    def _line(self, number: int, reply: AgentReply) -> bytes:
        return as_line(AgentSaid(agent_call=number, reply=reply, retires=self._execution.stuck > 0))


class _Emitted:
    """Sends emitted text from any thread, in its order."""

    def __init__(self, number: int, write: Write) -> None:
        self._number = number
        self._write = write
        self._loop = asyncio.get_running_loop()
        self._pieces: list[str] = []
        self._begins = 0

    def emit(self, begins: int, text: str) -> None:
        self._loop.call_soon_threadsafe(self._take, begins, text)

    def _take(self, begins: int, text: str) -> None:
        if not self._pieces:
            self._begins = begins
            # With what comes in the same moment.
            self._loop.call_soon(self._send)
        self._pieces.append(text)

    def _send(self) -> None:
        text = "".join(self._pieces)
        self._pieces.clear()
        try:
            line = as_line(AgentSaid(agent_call=self._number, begins=self._begins, text=text))
        except PydanticSerializationError:
            # The answer has the same text, and fails with it.
            return
        self._write(line)
