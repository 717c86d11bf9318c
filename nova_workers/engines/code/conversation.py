"""What the engine and the process of an agent say to each other during one attempt at a turn."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from nova_workers.base.errors import EngineFailure, ToolFailure
from nova_workers.contracts.content import ContentBlock, Message
from nova_workers.contracts.user_agents import (
    AgentProgram,
    AgentReply,
    AgentRequest,
    JournalEntry,
    Operation,
    ProcessLost,
    ReportText,
    StepResult,
)
from nova_workers.engines.code.entries import (
    earlier_steps,
    in_chunks,
    size_of_entry,
    size_of_message,
    size_of_step,
    spoken,
)

_END_S: Final = 5.0


class Conversation:
    """Brings a function to where the journal is, and on from there; to the same place again if its process ended.

    Attributes:
        wanted: What the function wants done, and waits for.
    """

    def __init__(
        self,
        program: AgentProgram,
        message: tuple[ContentBlock, ...],
        history: Sequence[Message] = (),
        *,
        began: str | None = None,
    ) -> None:
        """Begin nothing.

        Args:
            program: The function.
            message: The content of the run's message.
            history: The conversation before it.
            began: The version of the code that began the run, for errors; None if it is not known.
        """
        self._began = began
        self.wanted: tuple[Operation, ...] = ()
        self._program = program
        self._message = message
        self._history = history
        self._entries: Sequence[JournalEntry] = ()
        self._session: str | None = None
        self._sent = 0
        self._opening = asyncio.Lock()

    @property
    def is_open(self) -> bool:
        """Whether the function has begun."""
        return self._session is not None

    def expect(self, recorded: Sequence[Operation], *, step: int) -> None:
        """Compare what the function wants with a step of the journal that has begun.

        Raises:
            EngineFailure: They differ.
        """
        if _labels(recorded) != _labels(self.wanted):
            raise self._mismatch(
                f"At step {step} of the run the journal has {_labels(recorded)}, and the function wants "
                f"{_labels(self.wanted) or 'to end with an answer'}."
            )

    async def go_on(
        self, entries: Sequence[JournalEntry], report: ReportText | None = None, *, begins: bool = True
    ) -> AgentReply:
        """Return the operations that the function wants after these steps of the journal, which are all so far.

        Args:
            entries: From the first.
            report: Receives emitted text as it comes.
            begins: Whether a step that is wanted alone may be executed at once.

        Raises:
            EngineFailure: It failed, or its process ends each time.
        """
        self._entries = entries
        async with self._opening:
            return await self._go_on(report, begins=begins)

    async def perform(self, at: int, *, again: bool) -> StepResult:
        """Execute a step that is wanted, and return its result.

        Args:
            at: Its position in `wanted`.
            again: Whether it may be executed again if the process ends meanwhile.

        Raises:
            ToolFailure: It was interrupted.
        """
        tries = (True, False) if again else (False,)
        for may_repeat in tries:
            session = self._session
            try:
                return await self._perform(at)
            except ProcessLost as error:
                await self._reopen(session)
                if may_repeat:
                    continue
                raise ToolFailure(
                    f"{self.wanted[at].label} was interrupted: {error} Whether it had an effect is not known."
                ) from error
        raise AssertionError("the last try returns or raises")

    async def close(self) -> None:
        """End the function, and release its process."""
        if self._session is not None:
            request = AgentRequest(do="end", session=self._session)
            self._session = None
            with suppress(ProcessLost, EngineFailure, TimeoutError):
                async with asyncio.timeout(_END_S):
                    await self._program.ask(request)
        await self._program.close()

    async def _perform(self, at: int) -> StepResult:
        if self._session is None:
            raise ProcessLost("Its process ended.")
        reply = await self._program.ask(AgentRequest(do="perform", session=self._session, at=at))
        if not reply.known or reply.done is None:
            raise ProcessLost("Its process ended.")
        return reply.done

    async def _reopen(self, lost: str | None) -> None:
        """Bring the function to the same place in another process, unless another step did already."""
        async with self._opening:
            if self._session != lost:
                return
            wanted = self.wanted
            self._session = None
            await self._go_on(None, begins=False)
            if _labels(self.wanted) != _labels(wanted):
                # The turn ends where the function is asked for what comes next.
                self._session = None
                raise ToolFailure("The function wanted something else when it was executed again.")

    async def _go_on(self, report: ReportText | None, *, begins: bool) -> AgentReply:
        try:
            reply = await self._asked(report, begins=begins)
        except ProcessLost:
            # It may have ended while it did nothing for this run.
            self._session = None
            try:
                reply = await self._asked(report, begins=begins)
            except ProcessLost as error:
                self._session = None
                raise EngineFailure(str(error), kind="unknown", retryable=True) from error
        if reply.mismatch:
            raise self._mismatch(str(reply.problem))
        if reply.problem is not None:
            raise EngineFailure(f"{self._program.name} failed: {reply.problem}", kind="unknown", retryable=False)
        self.wanted = reply.operations
        return reply

    def _mismatch(self, problem: str) -> EngineFailure:
        version = f", version {self._program.version}" if self._program.version else ""
        began = f"; version {self._began} began the run" if self._began not in (None, self._program.version) else ""
        return EngineFailure(
            f"{problem} A run goes on only with code that wants the same in the same order: start a worker with the "
            "version that began such runs, which then finishes them, or cancel them. "
            f"({self._program.name}{version}{began})",
            kind="nondeterminism",
            retryable=False,
        )

    async def _asked(self, report: ReportText | None, *, begins: bool) -> AgentReply:
        is_new = self._session is None
        session = self._session or uuid.uuid4().hex
        sent = 0 if is_new else self._sent
        reply = AgentReply()
        for entries, more in in_chunks(self._entries[sent:], size_of_entry):
            request = AgentRequest(
                do="next",
                session=session,
                agent=self._program.name if is_new else None,
                message=self._message if is_new else (),
                entries=entries,
                more=more,
                begins=begins,
            )
            reply = await self._program.ask(request, None if more else report)
            if not reply.known:
                raise ProcessLost(f"The process of {self._program.name} ended.")
            is_new = False
        while reply.wants_history or reply.wants_earlier is not None:
            reply = await self._with_past(session, reply.wants_earlier, report, begins=begins)
        self._session, self._sent = session, len(self._entries)
        return reply

    async def _with_past(
        self, session: str, earlier: str | None, report: ReportText | None, *, begins: bool
    ) -> AgentReply:
        """Give the function the conversation, or steps of earlier turns by their name, and return what it wants then.

        It gets each once.
        """
        if earlier is None:
            requests = [
                (AgentRequest(do="history", session=session, history=messages, more=more, begins=begins), more)
                for messages, more in in_chunks(spoken(self._history), size_of_message)
            ]
        else:
            requests = [
                (AgentRequest(do="earlier", session=session, earlier=steps, more=more, begins=begins), more)
                for steps, more in in_chunks(earlier_steps(self._history, earlier), size_of_step)
            ]
        reply = AgentReply()
        for request, more in requests:
            reply = await self._program.ask(request, None if more else report)
            if not reply.known:
                raise ProcessLost(f"The process of {self._program.name} ended.")
        return reply


def _labels(operations: Sequence[Operation]) -> str:
    return " and ".join(each.label for each in operations)
