"""What a worker and the process of an agent in Python tell each other, and the port between engine and process.

The worker asks, and the process answers. To ``next`` it answers with what the function wants done, once it wants
something: the engine does that as the calls of a step of the journal, and the next ``next`` brings their results.

Both are lines of JSON on the pipe that also carries MCP: `AgentCall` to the process, `AgentSaid` from it. They begin
with `AGENT_LINE`, and the sessions of the MCP library, at either end, do not see them: to pass through those would take
more than a step itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from nova_workers.base.field_docs import DescribedFields
from nova_workers.contracts.native import CODE_MESSAGES, CODE_MODEL, CODE_STEP, CODE_STEP_ONCE
from nova_workers.contracts.usage import TokenUsage
from nova_workers.contracts.user_tools import CallContext

CODE_ENGINE: Final = "code"
"""The engine of agents in Python."""
AGENT_LINE: Final = b'{"agent_call":'
"""The beginning of each line about a call."""
MAX_STEP_BYTES: Final = 262_144
"""The limit of a step's result as JSON."""

OnNewVersion = Literal["continue", "refuse"]
"""What becomes of a run that another version of the code began: it goes on if its steps are the same, or it fails."""

ReportText = Callable[[int, str], None]
"""Receives a piece of emitted text, and where it begins in all text of the answer that is being waited for."""

_Tokens = Annotated[int, Field(ge=0, le=1_000_000_000)]

_KINDS: Final = {CODE_STEP: "step", CODE_STEP_ONCE: "step", CODE_MODEL: "model"}


class CodeConfig(DescribedFields):
    """The ``engine_config`` of an agent whose engine is `CODE_ENGINE`."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    agent: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*:[A-Za-z_][A-Za-z0-9_]*$", max_length=120)]
    """The project or package, and the function: ``shop:triage``."""
    on_new_version: OnNewVersion = "continue"
    """What becomes of a run that another version of the code began."""


class Operation(BaseModel):
    """Something that a function wants done: a call of the journal.

    Attributes:
        name: Of the call in the journal: a tool, or a kind of its own, such as `CODE_STEP`.
        input: Of the call.
    """

    model_config = ConfigDict(defer_build=True, frozen=True)

    name: str
    input: dict[str, Any] = {}

    @property
    def label(self) -> str:
        """What it is, for people, and what must be the same when a function is executed again."""
        if self.name in _KINDS:
            return f"{_KINDS[self.name]} {self.input.get('name')!r}"
        return "new_messages()" if self.name == CODE_MESSAGES else f"tool {self.name!r}"


class SpokenMessage(BaseModel):
    """A message of a conversation as people have it: without calls of tools, their results, and thinking."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    role: Literal["user", "assistant"]
    content: tuple[dict[str, Any], ...]


class ModelQuestion(BaseModel):
    """The input of an operation `CODE_MODEL`.

    Attributes:
        name: What people see.
        prompt: The message, as text or as content blocks.
        engine: None uses the fleet's default.
        model: An alias or an id; None uses the run's.
        history: The conversation before the prompt: given, or with True that of the thread before the run's message.
        output_schema: JSON schema for the answer.
    """

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    name: Annotated[str, Field(min_length=1, max_length=200)]
    prompt: Annotated[str, Field(min_length=1)] | tuple[dict[str, Any], ...]
    engine: str | None = None
    model: str | None = None
    system: str | None = None
    history: bool | tuple[SpokenMessage, ...] = False
    output_schema: dict[str, Any] | None = None
    max_tokens: Annotated[int, Field(gt=0)] | None = None
    temperature: Annotated[float, Field(ge=0, le=1)] | None = None
    thinking_budget_tokens: Annotated[int, Field(gt=0)] | None = None


class ModelAnswer(BaseModel):
    """The result of an operation `CODE_MODEL`, as JSON.

    Attributes:
        output: With a schema: the answer as a value that matches it.
        model: The model that answered, as its provider names it.
        truncated: Whether the answer was cut at its limit of tokens.
    """

    model_config = ConfigDict(defer_build=True, frozen=True)

    text: str
    output: Any = None
    model: str | None = None
    truncated: bool = False
    usage: TokenUsage = TokenUsage()


class ModelUse(BaseModel):
    """What code of users used of a model that it asked itself.

    Attributes:
        model: As its provider names it.
        provider: Its name in the price list, such as ``openai``; without one the cost is not known.
        input_tokens: What was neither read from nor written to the provider's cache.
    """

    model_config = ConfigDict(defer_build=True, frozen=True)

    model: Annotated[str, Field(max_length=200)] = ""
    provider: Annotated[str, Field(max_length=100)] | None = None
    input_tokens: _Tokens = 0
    output_tokens: _Tokens = 0
    cache_read_tokens: _Tokens = 0
    cache_write_tokens: _Tokens = 0
    reasoning_tokens: _Tokens = 0


class Finished(BaseModel):
    """An operation with its result."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    operation: Operation
    text: str = ""
    failed: bool = False


class JournalEntry(BaseModel):
    """A step of the journal: operations that were wanted at once.

    Attributes:
        text: What the function emitted before them.
        joined: Messages to the run that joined it after this step, as content blocks.
    """

    model_config = ConfigDict(defer_build=True, frozen=True)

    finished: tuple[Finished, ...]
    text: str = ""
    joined: tuple[tuple[dict[str, Any], ...], ...] = ()


class AgentRequest(BaseModel):
    """What the worker asks.

    Attributes:
        do: ``next``: take `entries`, and go on to what is wanted next. ``history``, ``earlier``: take `history` or
            `earlier`, for which the function asked, and go on likewise. ``perform``: execute the step at `at` among
            what is wanted. ``end``: drop the session.
        session: Names one execution of the function.
        agent: Begins a session, with `message`. Only in the first ``next``.
        message: Content blocks.
        entries: Steps of the journal, from the first, in their order; over all requests of a session each once.
        history: The conversation before the message, likewise.
        earlier: Steps of earlier turns, likewise.
        more: Further ones of these follow with the next request; this one is answered at once.
        begins: Whether a step that is wanted alone may be executed at once; not while it is to be compared with the
            journal.
    """

    model_config = ConfigDict(defer_build=True, frozen=True)

    do: Literal["next", "history", "earlier", "perform", "end"]
    session: str
    agent: str | None = None
    message: tuple[dict[str, Any], ...] = ()
    entries: tuple[JournalEntry, ...] = ()
    history: tuple[SpokenMessage, ...] = ()
    earlier: tuple[Finished, ...] = ()
    more: bool = False
    begins: bool = True
    at: int = 0


class StepResult(BaseModel):
    """What a step returned, as JSON, or why it failed.

    Attributes:
        used: Of models that it asked itself.
    """

    model_config = ConfigDict(defer_build=True, frozen=True)

    text: str = ""
    failed: bool = False
    used: tuple[ModelUse, ...] = ()


class AgentReply(BaseModel):
    """What the process answers.

    Attributes:
        text: To ``next``: all text that the function emitted since the last answer, and the answer itself at the end,
            unless that is what it emitted last.
        operations: What the function wants done. Empty: it ended, unless it wants the history or earlier steps.
        done: To ``next``: the result of the only operation, if that is a step which has ended already. To ``perform``:
            the result.
        wants_history: The function waits for the conversation before its message.
        wants_earlier: The function waits for the steps with this name of the turns before its message.
        problem: The function failed.
        mismatch: It failed since it does not do what the journal has.
        known: Whether there is such a session.
    """

    model_config = ConfigDict(defer_build=True, frozen=True)

    text: str = ""
    operations: tuple[Operation, ...] = ()
    done: StepResult | None = None
    wants_history: bool = False
    wants_earlier: str | None = None
    problem: str | None = None
    mismatch: bool = False
    known: bool = True


class AgentCall(BaseModel):
    """A line to the process: a question, or that its answer is not needed any more.

    Attributes:
        agent_call: Its number among those on this pipe.
        request: None cancels the call.
        context: With the request that begins a session: all that it may know of the run.
    """

    model_config = ConfigDict(defer_build=True, frozen=True, hide_input_in_errors=True)

    agent_call: int
    request: AgentRequest | None = None
    context: CallContext | None = None


class AgentSaid(BaseModel):
    """A line from the process: emitted text, or the answer, which is the last line of a call.

    Attributes:
        agent_call: The number of the call.
        begins: Where the text begins in all text of the answer.
        retires: The process should get no further session, such as because a step in it cannot be ended.
    """

    model_config = ConfigDict(defer_build=True, frozen=True, hide_input_in_errors=True)

    agent_call: int
    begins: int = 0
    text: str = ""
    reply: AgentReply | None = None
    retires: bool = False


class ProcessLost(ConnectionError):
    """The process of an agent ended, or does not answer: its sessions are lost. The message has its last words."""


class AgentProgram(Protocol):
    """The function of an agent, for one attempt at a turn.

    Attributes:
        name: As agents name it: ``project:function``.
        version: Of its code; empty if it is not known.
        on_new_version: What becomes of a run that another version of the code began.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 - described in the class's docstring
    @property
    def version(self) -> str: ...  # noqa: D102 - likewise
    @property
    def on_new_version(self) -> OnNewVersion: ...  # noqa: D102 - likewise

    async def ask(self, request: AgentRequest, report: ReportText | None = None) -> AgentReply:
        """Return the answer of the process, which starts if it does not run.

        Args:
            request: The question. The agent in it is that of this program, whatever it names.
            report: Receives emitted text as it comes.

        Raises:
            ProcessLost: It ended before it answered.
            EngineFailure: It does not start.
        """
        ...

    async def close(self) -> None:
        """Release the process."""
        ...


def as_line(model: AgentCall | AgentSaid) -> bytes:
    """Return the line of a call.

    Raises:
        PydanticSerializationError: A text in it has no form in JSON, such as half of a surrogate pair.
    """
    return model.__pydantic_serializer__.to_json(model, exclude_defaults=True) + b"\n"
