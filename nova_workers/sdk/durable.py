"""What an agent in Python may do: each operation is a step of its run's journal, which a later attempt continues.

A run may be executed in several attempts, by several workers. Each executes the function from its start; operations
that the journal has return what they returned, without being executed, and the first one that it does not have is
executed. So what the function does between operations must depend on nothing but its message and their results.
"""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final, Generic, ParamSpec, Protocol, TypeVar, overload

from pydantic import BaseModel

from nova_workers.base.errors import ToolFailure
from nova_workers.contracts.content import JsonObject, text_of
from nova_workers.contracts.native import CODE_MESSAGES, CODE_MODEL, CODE_STEP, CODE_STEP_ONCE
from nova_workers.contracts.thread_state import STATE_TOOL, document_in, version_in
from nova_workers.contracts.user_agents import (
    Finished,
    JournalEntry,
    ModelAnswer,
    ModelUse,
    Operation,
    SpokenMessage,
)
from nova_workers.contracts.user_tools import CallContext
from nova_workers.sdk.context import ToolContext
from nova_workers.sdk.declaration import ToolOptions

T = TypeVar("T")
P = ParamSpec("P")

_log = logging.getLogger("agents")

_STEP_TIMEOUT_S: Final = 3_600.0
_MAX_NAME_CHARS: Final = 200


class StepFailed(Exception):
    """A step raised an error, took too long, returned what is no JSON or too much of it, or was interrupted."""


class ModelFailed(Exception):
    """A model gave no answer, for a reason that asking again later does not change."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message to the agent.

    Attributes:
        content: Content blocks, such as ``{"type": "text", "text": …}``.
    """

    content: tuple[JsonObject, ...]

    @classmethod
    def of(cls, text: str) -> Message:
        """Return a message of text, for tests."""
        return cls(({"type": "text", "text": text},))

    @property
    def text(self) -> str:
        """The text of all its blocks."""
        return text_of(self.content)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer that ends a run."""

    text: str


@dataclass(frozen=True, slots=True)
class Used(Generic[T]):
    """What a step's function returns in place of its value, if it asked models: the run counts what they used."""

    value: T
    models: tuple[ModelUse, ...]


@dataclass(frozen=True, slots=True)
class StepFunction:
    """The function of a step, in the form of a tool without input."""

    name: str
    function: Callable[[], Any]
    is_async: bool
    options: ToolOptions
    description: str = ""
    place: str = ""

    @property
    def input_schema(self) -> JsonObject:
        """The schema of no input."""
        return {"type": "object"}

    def arguments(self, given: JsonObject, context: ToolContext) -> dict[str, Any]:
        """Return no arguments: the function has them."""
        del given, context
        return {}


class Journal(Protocol):
    """Executes operations, or returns what the journal of the run has of them."""

    @property
    def replaying(self) -> bool:
        """Whether it has results of operations that are still to come."""
        ...

    async def execute(self, wanted: Sequence[Wanted[Any]]) -> JournalEntry:
        """Return the step of the journal in which operations are executed at once."""
        ...

    def recorded(self) -> JournalEntry | None:
        """Return the next step that the journal has, which an earlier attempt made; None after the last of them."""
        ...

    async def history(self) -> tuple[SpokenMessage, ...]:
        """Return the conversation before the run's message."""
        ...

    async def earlier(self, name: str) -> tuple[Finished, ...]:
        """Return the steps with this name that ended well in the turns before the run's message, oldest first."""
        ...

    def emit(self, text: str) -> None:
        """Show text to people, unless an earlier attempt did."""
        ...


class Wanted(Generic[T]):
    """An operation. It begins when it is awaited, alone or with others by `Context.gather`."""

    def __init__(
        self,
        journal: Journal,
        operation: Operation,
        read: Callable[[JournalEntry, int], T],
        function: StepFunction | None = None,
    ) -> None:
        """Describe it.

        Args:
            journal: Executes it.
            operation: What it is in the journal.
            read: Returns its value, or raises its error, by its step of the journal and its position there.
            function: Of a step.
        """
        self.operation = operation
        self.read = read
        self.function = function
        self._journal = journal

    def __await__(self) -> Generator[Any, None, T]:
        """Wait for it."""
        return self._wait().__await__()

    async def _wait(self) -> T:
        return self.read(await self._journal.execute((self,)), 0)


class ThreadState:
    """The state document of the conversation, which programs and people see and change too.

    Needs the capability ``state``, unless the conversation has a document already. Each use is an operation, so that a
    later attempt gets what this one read.
    """

    def __init__(self, journal: Journal) -> None:
        """Take what executes operations."""
        self._journal = journal

    def read(self) -> Wanted[JsonObject]:
        """Return the document."""
        return self._wanted({"action": "read"}, _document)

    def merge(self, patch: Mapping[str, Any]) -> Wanted[int]:
        """Change fields by a JSON Merge Patch, in which None removes one. Returns the document's version."""
        return self._wanted({"action": "merge", "value": dict(patch)}, _version)

    def replace(self, document: Mapping[str, Any]) -> Wanted[int]:
        """Set the whole document. Returns its version."""
        return self._wanted({"action": "replace", "value": dict(document)}, _version)

    def _wanted(self, given: JsonObject, read: Callable[[JournalEntry, int], T]) -> Wanted[T]:
        return Wanted(self._journal, Operation(name=STATE_TOOL, input=given), read)


class Context:
    """The context of a run: an agent gets it as its first argument.

    Attributes:
        tenant_id: The tenant of the run.
        agent_id: The agent whose configuration names the function.
        thread_id: The conversation.
        run_id: The run, which may be executed in several attempts.
        state: The state document of the conversation.
        journal: Executes operations; for what builds other agents on this.
        log: Writes to the worker's log, once: not what an earlier attempt wrote.
    """

    def __init__(self, journal: Journal, about: CallContext) -> None:
        """Make the context of a run.

        Args:
            journal: Executes operations.
            about: The run, with the secrets of its agent's grant.
        """
        self.tenant_id = about.tenant_id
        self.agent_id = about.agent_id
        self.thread_id = about.thread_id
        self.run_id = about.run_id
        self.log: logging.LoggerAdapter[logging.Logger] = _Log(journal, about)
        self.state = ThreadState(journal)
        self.journal = journal
        self._secrets = ToolContext(secrets=about.secrets)

    @property
    def replaying(self) -> bool:
        """Whether the next operation has its result already, from an earlier attempt."""
        return self.journal.replaying

    @overload
    def step(
        self,
        name: str,
        function: Callable[P, Awaitable[T]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Wanted[T]: ...
    @overload
    def step(self, name: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Wanted[T]: ...
    def step(self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Wanted[Any]:
        """Execute a function, plain or async, and keep its result: later attempts get it without executing it.

        If the process ends while it is executed, it is executed again: see `step_once`. It may take an hour; see
        `step_with`.

        Args:
            name: What people see. It must be the same when the run is executed again.
            function: Returns what JSON can express, at most 256 kB: None, text, numbers, lists, dictionaries, pydantic
                models. It comes back as JSON has it.
            args: Its arguments.
            kwargs: Likewise.

        Raises:
            StepFailed: When awaited: it raised an error, which is kept too; or its result cannot be.
        """
        return self._step(CODE_STEP, name, partial(function, *args, **kwargs), _STEP_TIMEOUT_S)

    def step_once(self, name: str, function: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Wanted[Any]:
        """Execute a function that must not be executed twice, as `step` otherwise.

        Raises:
            StepFailed: Also if the process ended while it was executed: whether it had an effect is not known.
        """
        return self._step(CODE_STEP_ONCE, name, partial(function, *args, **kwargs), _STEP_TIMEOUT_S)

    def step_with(self, name: str, function: Callable[[], Any], *, timeout_s: float, once: bool = False) -> Wanted[Any]:
        """Execute a function without arguments within a time limit, as `step` or `step_once` otherwise."""
        return self._step(CODE_STEP_ONCE if once else CODE_STEP, name, function, timeout_s)

    def model(
        self,
        prompt: str | Sequence[Mapping[str, Any]],
        /,
        *,
        name: str = "model",
        engine: str | None = None,
        model: str | None = None,
        system: str | None = None,
        history: bool | Sequence[SpokenMessage] = False,
        output: Mapping[str, Any] | type[BaseModel] | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
        thinking_budget_tokens: int | None = None,
    ) -> Wanted[ModelAnswer]:
        """Ask a model of the fleet, and keep its answer: later attempts get it without asking.

        Followers of the run see the answer come, under its name. Its usage is the run's, and counts against all
        budgets. If the provider cannot be used, the run waits for it as with any engine.

        Args:
            prompt: The message: text, or content blocks.
            name: What people see. It must be the same when the run is executed again.
            engine: The engine; None is the fleet's default.
            model: An alias or an id; None is the agent's.
            system: The system prompt.
            history: True: the model sees the conversation before the run's message. Or another one, such as a part of
                `history`.
            output: A JSON schema, or a pydantic model: the answer's `output` is a value that matches it.
            max_tokens: The limit of the answer.
            temperature: From 0 to 1.
            thinking_budget_tokens: The limit of extended thinking.

        Raises:
            ModelFailed: When awaited: it gave no answer, or the request is wrong.
        """
        schema = output.model_json_schema() if isinstance(output, type) else output
        given: dict[str, Any] = {
            "name": name,
            "prompt": prompt if isinstance(prompt, str) else [dict(block) for block in prompt],
            "engine": engine,
            "model": model,
            "system": system,
            "history": history if isinstance(history, bool) else [each.model_dump(mode="json") for each in history],
            "output_schema": None if schema is None else dict(schema),
            "max_tokens": max_tokens,
            "temperature": temperature,
            "thinking_budget_tokens": thinking_budget_tokens,
        }
        kept = {key: value for key, value in given.items() if value is not None and value is not False}
        return Wanted(self.journal, Operation(name=CODE_MODEL, input=kept), _model_answer)

    async def history(self) -> tuple[SpokenMessage, ...]:
        """Return the conversation before the run's message, oldest first, without calls of tools. No operation."""
        return await self.journal.history()

    def tool(self, name: str, /, **given: Any) -> Wanted[str]:
        """Call a tool of the agent's capabilities, and return its text.

        The agent's permissions apply: a call may wait for the approval of a person, and tools may wait themselves. The
        run then takes no worker.

        Args:
            name: The tool.
            given: Its input.

        Raises:
            ToolFailure: When awaited: it failed, or the agent has no such tool.
        """
        return self._call(name, given)

    def ask_user(self, question: str, /, **given: Any) -> Wanted[str]:
        """Ask a person, wait for as long as it takes, and return the answer. Needs the capability ``user``.

        Args:
            question: What the person reads.
            given: Further input of the tool ``ask_user``, such as ``options`` and ``default``.
        """
        return self._call("ask_user", {"question": question, **given})

    def ask_agent(self, agent: str, message: str, /, **given: Any) -> Wanted[str]:
        """Ask another agent, and return its answer. Needs the capability ``agents``.

        Args:
            agent: Its id.
            message: What the agent is asked, with all that it must know.
            given: Further input of the tool ``ask_agent``.
        """
        return self._call("ask_agent", {"agent_id": agent, "message": message, **given})

    def sleep_until(self, time: datetime) -> Wanted[None]:
        """Wait until a time, which has a time zone. Needs the capability ``user``.

        Raises:
            ValueError: It has no time zone.
        """
        if time.tzinfo is None:
            raise ValueError(f"sleep_until: {time.isoformat()} has no time zone; expected one, such as UTC.")
        return Wanted(self.journal, Operation(name="wait_until", input={"until": time.isoformat()}), _no_value)

    def sleep(self, seconds: float) -> Wanted[None]:
        """Wait for a time, also longer than any worker lives. Needs the capability ``user``."""
        return Wanted(self.journal, Operation(name="wait_until", input={"seconds": seconds}), _no_value)

    def new_messages(self) -> Wanted[tuple[Message, ...]]:
        """Return the messages that were sent to join this run (``on_busy: steer``), and let them join.

        Those for which it is not asked stay queued, and each becomes a run of its own after this one.
        """
        return Wanted(self.journal, Operation(name=CODE_MESSAGES), _joined)

    async def gather(self, *wanted: Wanted[Any]) -> list[Any]:
        """Execute operations at once, and return their values in their order.

        Raises:
            StepFailed: One failed, after all have ended. The first of them counts.
            ToolFailure: Likewise.
        """
        if not wanted:
            return []
        entry = await self.journal.execute(wanted)
        return [each.read(entry, at) for at, each in enumerate(wanted)]

    def emit(self, text: str) -> None:
        """Show text to people at once. With a final None, what was emitted since the last operation is the answer."""
        self.journal.emit(text)

    def secret(self, name: str) -> str:
        """Return the value of a secret of the tenant, which the agent's grant of the project must name.

        Raises:
            ToolFailure: The grant does not name it.
        """
        return self._secrets.secret(name)

    def _step(self, kind: str, name: str, function: Callable[[], Any], timeout_s: float) -> Wanted[Any]:
        if not name or len(name) > _MAX_NAME_CHARS:
            raise ValueError(f"A step has a name of 1 to {_MAX_NAME_CHARS} characters; got {len(name)}.")
        inner = function.func if isinstance(function, partial) else function
        run = StepFunction(
            f"The step {name!r}", function, inspect.iscoroutinefunction(inner), ToolOptions(timeout_s=timeout_s)
        )
        return Wanted(self.journal, Operation(name=kind, input={"name": name}), step_value, run)

    def _call(self, name: str, given: Mapping[str, Any]) -> Wanted[str]:
        return Wanted(self.journal, Operation(name=name, input=dict(given)), _text)


class _Log(logging.LoggerAdapter[logging.Logger]):
    def __init__(self, journal: Journal, about: CallContext) -> None:
        super().__init__(_log, {"agent": about.agent_id, "run_id": about.run_id})
        self._journal = journal

    def isEnabledFor(self, level: int) -> bool:
        return not self._journal.replaying and super().isEnabledFor(level)

    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        fields = " ".join(f"{name}={value}" for name, value in (self.extra or {}).items() if value)
        return f"{msg} [{fields}]", kwargs


def step_value(entry: JournalEntry, at: int) -> Any:
    """Return the value of a step, by its entry in the journal and its position there.

    Raises:
        StepFailed: It failed.
    """
    finished = entry.finished[at]
    if finished.failed:
        raise StepFailed(finished.text)
    return json.loads(finished.text)


def _text(entry: JournalEntry, at: int) -> str:
    finished = entry.finished[at]
    if finished.failed:
        raise ToolFailure(finished.text, tool=finished.operation.name)
    return finished.text


def _model_answer(entry: JournalEntry, at: int) -> ModelAnswer:
    finished = entry.finished[at]
    if finished.failed:
        raise ModelFailed(finished.text)
    return ModelAnswer.model_validate_json(finished.text)


def _document(entry: JournalEntry, at: int) -> JsonObject:
    return document_in(_text(entry, at))[1]


def _version(entry: JournalEntry, at: int) -> int:
    return version_in(_text(entry, at))


def _no_value(entry: JournalEntry, at: int) -> None:
    _text(entry, at)


def _joined(entry: JournalEntry, at: int) -> tuple[Message, ...]:
    _text(entry, at)
    return tuple(Message(content) for content in entry.joined)
