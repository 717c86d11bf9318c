"""Executes the functions of agents in the process of a project.

A session is one execution of a function, for one attempt at a run. Its function runs on the event loop of async
functions of users, and so do all methods here that it or the worker wakes up; steps run as tools do.
"""

from __future__ import annotations

import asyncio
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_json

from nova_workers.base.errors import NovaError, ToolFailure
from nova_workers.base.user_code import raised_at
from nova_workers.contracts.native import CODE_STEP
from nova_workers.contracts.user_agents import (
    MAX_STEP_BYTES,
    AgentReply,
    AgentRequest,
    Finished,
    JournalEntry,
    SpokenMessage,
    StepResult,
)
from nova_workers.contracts.user_tools import CallContext
from nova_workers.sdk.agents import UserAgent
from nova_workers.sdk.context import Asked, ToolContext
from nova_workers.sdk.durable import Answer, Context, Message, StepFunction, Used, Wanted
from nova_workers.sdk.execution import Begun, Execution, UserLoop

Emit = Callable[[int, str], None]
"""Receives emitted text, and where it begins in all text of the answer. May be called from any thread."""

_SHORT_S: Final = 0.02
"""The time that an answer waits for a step. A longer one is shown and journaled as begun, like a call of a tool."""
_MAX_TEXT_CHARS: Final = 2_000_000
"""The limit of text between two operations."""


class Sessions:
    """All sessions of a process. Used on the loop of the protocol."""

    def __init__(self, agents: Mapping[str, UserAgent], execution: Execution) -> None:
        self._agents = agents
        self._execution = execution
        self._sessions: dict[str, _Session] = {}

    async def answer(self, request: AgentRequest, about: CallContext | None, emit: Emit) -> AgentReply:
        """Answer a worker.

        Args:
            request: The question.
            about: The run, with a request that begins a session.
            emit: Receives emitted text.
        """
        session = self._sessions.get(request.session)
        if session is None and request.agent is not None:
            agent = self._agents.get(request.agent)
            if agent is None:
                known = ", ".join(self._agents) or "none"
                return AgentReply(problem=f"There is no agent {request.agent!r} in this code; there are: {known}.")
            loop = await self._execution.free_loop()
            session = _Session(agent, Message(request.message), about or CallContext(), self._execution, loop)
            self._sessions[request.session] = session
        if session is None:
            return AgentReply(known=False)
        match request.do:
            case "next" | "history" | "earlier":
                reply = await session.answer(request, emit)
                if session.begun is None or not session.begun.future.done():
                    return reply
                return reply.model_copy(update={"done": await self._perform(session, 0)})
            case "perform":
                result = await self._perform(session, request.at)
                return AgentReply(known=result is not None, done=result)
            case "end":
                del self._sessions[request.session]
                session.end()
                return AgentReply()

    async def _perform(self, session: _Session, at: int) -> StepResult | None:
        """Execute a step, unless none is wanted there; or wait for it, if it has begun."""
        function = session.function(at)
        if function is None:
            return None
        context = ToolContext(**dict(session.about), timeout_s=function.options.timeout_s, tool=function.name)
        begun, session.begun = session.begun, None
        try:
            if begun is None:
                value = await self._execution.call(function, {}, context)
            else:
                value = await self._execution.wait_for(begun, function, context)
            if isinstance(value, Used):
                return StepResult(text=_json(function.name, value.value), used=value.models)
            return StepResult(text=_json(function.name, value))
        except ToolFailure as error:
            return StepResult(text=error.message, failed=True)
        except Asked:
            return StepResult(
                text=f"{function.name} asks a person, which a step cannot; use Context.ask_user.", failed=True
            )


class _Question:
    """A question of the worker: what the function wants next. Made, and answered, on the loop of the protocol."""

    def __init__(self, emit: Emit, *, begins: bool) -> None:
        self.emit = emit
        self.begins = begins
        """Whether a step may begin before the worker asks for it."""
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[AgentReply] = self._loop.create_future()
        self._begun: AgentReply | None = None
        """The answer, if a step that it wants has begun."""
        self._is_late = False
        self._patience = self._loop.call_later(_SHORT_S, self._lose_patience)

    async def answer(self) -> AgentReply:
        """Return the answer."""
        try:
            return await self._answer
        finally:
            self._patience.cancel()

    def say(self, reply: AgentReply) -> None:
        """Answer. From any thread."""
        # Not as a coroutine of that loop, which would double the cost of the way there and back.
        self._loop.call_soon_threadsafe(self._settle, reply)

    def say_after(self, begun: Begun, reply: AgentReply) -> None:
        """Answer once a step that is wanted has ended, or after `_SHORT_S`. From any thread."""
        self._begun = reply
        begun.future.add_done_callback(lambda _: self.say(reply))
        # After `_begun` is set, as the other side looks at that after it is late: so one of them sees the other.
        if self._is_late:
            self._loop.call_soon_threadsafe(self._loop.call_later, _SHORT_S, self._settle, reply)

    def _lose_patience(self) -> None:
        self._is_late = True
        if self._begun is not None:
            self._settle(self._begun)

    def _settle(self, reply: AgentReply) -> None:
        # It may have an answer, or have been canceled meanwhile.
        if not self._answer.done():
            self._answer.set_result(reply)


class _Session:
    """Implements `nova_workers.sdk.durable.Journal` for one function."""

    def __init__(
        self, agent: UserAgent, message: Message, about: CallContext, execution: Execution, loop: UserLoop
    ) -> None:
        self._agent = agent
        self._message = message
        self.about = about
        self._execution = execution
        self._user_loop, self._loop = loop, loop.loop
        self._entries: deque[JournalEntry] = deque()
        self._taken = 0
        """How many steps of the journal the function has had."""
        self._wanted: Sequence[Wanted[Any]] = ()
        """What is being executed elsewhere, or waits to be."""
        self._waiting: asyncio.Future[None] | None = None
        """What the function waits for meanwhile."""
        self._asked = ""
        """What that is, unless it is an operation."""
        self._history: list[SpokenMessage] = []
        self._has_history = False
        self._earlier: list[Finished] = []
        self._last_text = ""
        """What was emitted last before an operation."""
        self._question: _Question | None = None
        self._unsent: AgentReply | None = None
        """An answer without a question: the function ended otherwise than by an operation."""
        self._text: list[str] = []
        self._chars = 0
        self._task: asyncio.Task[None] | None = None
        self.begun: Begun | None = None
        """A step that is wanted alone, and is executed before the worker asks for it."""

    async def answer(self, request: AgentRequest, emit: Emit) -> AgentReply:
        """Return the answer to a question, once the function gives it. From the loop of the protocol."""
        question = _Question(emit, begins=request.begins)
        self._loop.call_soon_threadsafe(self._go_on, request, question)
        try:
            return await question.answer()
        except asyncio.CancelledError:
            self._loop.call_soon_threadsafe(self._drop, question)
            raise

    def function(self, at: int) -> StepFunction | None:
        """Return the function of a step that is wanted."""
        return self._wanted[at].function if at < len(self._wanted) else None

    def end(self) -> None:
        """Cancel the function and its step. From the loop of the protocol."""
        if self.begun is not None:
            self.begun.cancel()
        if self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)

    def _drop(self, question: _Question) -> None:
        """Answer a question no more: it was canceled."""
        if self._question is question:
            self._question = None

    def _go_on(self, request: AgentRequest, question: _Question) -> None:
        """Take steps of the journal, or what the function asked for, and let it go on to what is wanted next."""
        self._entries.extend(request.entries)
        self._history.extend(request.history)
        self._earlier.extend(request.earlier)
        if request.more:
            question.say(AgentReply())
            return
        self._has_history = self._has_history or request.do == "history"
        if self._unsent is not None:
            question.say(self._unsent)
            return
        self._question = question
        if self._task is None:
            self._task = self._loop.create_task(self._run(), name=f"agent-{self._agent.name}")
        elif self._waiting is not None and not self._waiting.done() and (self._entries or request.do != "next"):
            self._waiting.set_result(None)

    @property
    def replaying(self) -> bool:
        """See `Journal.replaying`."""
        return bool(self._entries)

    def emit(self, text: str) -> None:
        """See `Journal.emit`."""
        if self._entries or not text:
            return
        at, self._chars = self._chars, self._chars + len(text)
        if self._chars > _MAX_TEXT_CHARS:
            raise ValueError(f"More than {_MAX_TEXT_CHARS:,} characters were emitted between two operations.")
        self._text.append(text)
        if self._question is not None:
            self._question.emit(at, text)

    async def execute(self, wanted: Sequence[Wanted[Any]]) -> JournalEntry:
        """See `Journal.execute`."""
        self._refuse_second(wanted[0].operation.label)
        if not self._entries:
            self._wanted = wanted
            self._waiting = self._loop.create_future()
            self._want(AgentReply(text=self._take_text(), operations=tuple(each.operation for each in wanted)))
            await self._wait(wanted[0].operation.label)
            self._wanted, self.begun = (), None
        else:
            self._take_text()
        entry = self._entries.popleft()
        self._last_text = entry.text or self._last_text
        self._taken += 1
        labels = [each.operation.label for each in wanted]
        recorded = [each.operation.label for each in entry.finished]
        if labels != recorded:
            await self._differ(" and ".join(recorded), " and ".join(labels))
        return entry

    def recorded(self) -> JournalEntry | None:
        """See `Journal.recorded`."""
        return self._entries[0] if self._entries else None

    async def history(self) -> tuple[SpokenMessage, ...]:
        """See `Journal.history`."""
        if not self._has_history:
            await self._ask("history()", AgentReply(wants_history=True))
        return tuple(self._history)

    async def earlier(self, name: str) -> tuple[Finished, ...]:
        """See `Journal.earlier`."""
        self._earlier.clear()
        await self._ask(f"the earlier steps {name!r}", AgentReply(wants_earlier=name))
        return tuple(self._earlier)

    async def _ask(self, label: str, question: AgentReply) -> None:
        self._refuse_second(label)
        self._waiting = self._loop.create_future()
        self._asked = label
        self._say(question)
        await self._wait(label)

    def _refuse_second(self, label: str) -> None:
        if not self._wanted and (self._waiting is None or self._waiting.done()):
            return
        open_one = self._wanted[0].operation.label if self._wanted else self._asked
        raise RuntimeError(
            f"{label} was wanted while {open_one} has not ended. "
            "Pass operations that are to be executed at once to ctx.gather: their order must always be the same."
        )

    async def _wait(self, label: str) -> None:
        """Wait until the worker brings what is missing."""
        assert self._waiting is not None  # noqa: S101 - made by the caller
        try:
            await self._waiting
        except asyncio.CancelledError:
            self._say(
                AgentReply(
                    problem=f"{label} was canceled by the function, such as by asyncio.timeout(). An operation cannot "
                    "be; expected 'timeout_s' of ctx.step_with."
                )
            )
            raise

    async def _differ(self, recorded: str, wanted: str) -> None:
        """Fail, and never return to the function, which could catch an error."""
        self._say(
            AgentReply(
                problem=f"At step {self._taken} of the run the journal has {recorded}, "
                f"and the function wants {wanted}.",
                mismatch=True,
            )
        )
        await self._loop.create_future()

    async def _run(self) -> None:
        try:
            value = await self._agent.function(Context(self, self.about), self._message)
            if self._entries:
                self._taken += 1
                await self._differ(
                    " and ".join(each.operation.label for each in self._entries[0].finished), "to end with an answer"
                )
            said = self._take_text()
            answer = "" if value is None else _answer(self._agent, value)
            # An answer that was emitted as it came is not said twice.
            repeats = answer.strip() == (said or self._last_text).strip()
            self._say(AgentReply(text=said if repeats else f"{said}{answer}"))
        except asyncio.CancelledError:
            self._say(AgentReply(problem="The function was canceled."))
        except BaseException as error:
            # Code of users may raise anything, and the process goes on.
            self._say(AgentReply(text=self._take_text(), problem=_problem(error)))

    def _want(self, reply: AgentReply) -> None:
        """Answer with what the function wants; with its result, if that is a step which ends at once.

        That saves the worker a question and a commit. One of `step_once` begins after the journal has it.
        """
        question, only = self._question, self._wanted[0]
        if question is None or not question.begins or len(self._wanted) > 1 or only.operation.name != CODE_STEP:
            self._say(reply)
            return
        assert only.function is not None  # noqa: S101 - as of each step
        self.begun = self._execution.begin(only.function, self._user_loop)
        if self.begun is None:
            self._say(reply)
            return
        self._question = None
        question.say_after(self.begun, reply)

    def _say(self, reply: AgentReply) -> None:
        if self._question is not None:
            question, self._question = self._question, None
            question.say(reply)
        elif self._unsent is None:
            self._unsent = reply

    def _take_text(self) -> str:
        text = "".join(self._text)
        self._text.clear()
        self._chars = 0
        return text


def _answer(agent: UserAgent, value: Any) -> str:
    if isinstance(value, Answer):
        return value.text
    return value if isinstance(value, str) else _json(f"{agent.name}()", value)


def _json(name: str, value: Any) -> str:
    try:
        text = value.model_dump_json() if isinstance(value, BaseModel) else to_json(value).decode()
    except (PydanticSerializationError, ValueError) as error:
        raise ToolFailure(
            f"{name} returned a {type(value).__name__} that is no JSON ({error}); expected values of JSON."
        ) from error
    size = len(text.encode())
    if size > MAX_STEP_BYTES:
        raise ToolFailure(
            f"{name} is too large: its result is {size:,} bytes as JSON, and the journal takes {MAX_STEP_BYTES:,}. "
            "Keep large values elsewhere, and return where they are."
        )
    return text


def _problem(error: BaseException) -> str:
    traceback.print_exception(error)
    place = raised_at(error)
    what = error.message if isinstance(error, NovaError) else f"{type(error).__name__}: {error}"
    return what + (f" (at {place})" if place else "")
