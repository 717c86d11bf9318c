"""What a run may wait for: the result of a tool call that comes from outside, in seconds or in weeks.

A tool that must wait returns one of these requests instead of a result. The run then releases its worker slot, its lock
and its memory; the answer is written as the call's result, and the run continues from there.

Beside tools: why a run is held, as it is stored and shown. It waits for a model provider that cannot be used.
"""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StringConstraints,
    TypeAdapter,
    model_validator,
)

from nova_workers.base.errors import Outage
from nova_workers.base.vocabulary import ANSWERABLE, AwaitedSender, HoldReason, OutageReason, WaitKind
from nova_workers.contracts.agents import AgentId
from nova_workers.contracts.authors.rights import ADDRESSEE, FREE, MESSAGE, PARTS, authored
from nova_workers.contracts.bodies import Body, OneLine, View
from nova_workers.contracts.content import ContentBlock

__all__ = [
    "AFFIRMATIVE",
    "ANSWERABLE",
    "MAX_ANSWER_CHARS",
    "MAX_CLIENT_TOOLS",
    "MAX_DELEGATION_DEPTH",
    "MAX_MESSAGE_CHARS",
    "MAX_OPTION_CHARS",
    "MAX_WAIT_S",
    "Answer",
    "AskAgent",
    "AskApproval",
    "AskUser",
    "AwaitMessages",
    "AwaitOrchestration",
    "CallClientTool",
    "HoldDetail",
    "HoldView",
    "Pause",
    "RunAnswer",
    "ToolResult",
    "ToolResults",
    "WaitKind",
    "WaitRequest",
    "WaitView",
    "advice_for",
    "describe_question",
    "describe_waits",
    "detail_of",
    "questions_among",
    "wait_adapter",
]


MAX_WAIT_S = 365 * 86_400.0
"""Longest wait: one year, in seconds."""

MAX_CLIENT_TOOLS: Final = 128
"""Most tools that the caller of a run may bring."""

MAX_DELEGATION_DEPTH = 3
"""Longest chain of agents that ask each other; the last one in it cannot ask another agent."""

MAX_ANSWER_CHARS = 10_000
"""Longest question, and longest answer to one."""

MAX_OPTION_CHARS = 200

AFFIRMATIVE: Final = frozenset({"yes", "y", "ok", "approve", "approved"})
"""Words, in lower case, by which a person permits a call in a chat."""

MAX_MESSAGE_CHARS = 200_000
"""Longest message to an agent."""

_AnswerText = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_ANSWER_CHARS)]
_Option = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_OPTION_CHARS)]


class _Value(BaseModel):
    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")


class AskUser(_Value):
    """A question to a person."""

    kind: Literal["user"] = "user"
    question: _AnswerText
    options: Annotated[tuple[_Option, ...], Field(max_length=20)] = ()
    """The choices that are offered; any other text is an answer too, unless `only_options`."""
    only_options: StrictBool = False
    """Refuse an answer that is none of the options."""
    expires_in_s: Annotated[float, Field(gt=0, le=MAX_WAIT_S)] | None = None
    """None waits for ever."""
    default: _AnswerText | None = None
    """The answer if none is given in time."""
    escalate_to: AgentId | None = None
    """The agent that is asked if no answer is given in time."""
    repeats_call: StrictBool = False
    """The answer is for the tool, which is called again with it: it is not the call's result."""

    @model_validator(mode="after")
    def _is_consistent(self) -> "AskUser":
        if (self.default is not None or self.escalate_to is not None) and self.expires_in_s is None:
            raise ValueError("default and escalate_to are for questions with expires_in_s; give that too")
        if self.default is not None and self.escalate_to is not None:
            raise ValueError("give default or escalate_to, not both")
        if self.only_options and not self.options:
            raise ValueError("only_options is for questions with options; give those too")
        if self.only_options and self.default is not None and self.default not in self.options:
            raise ValueError(f"default {self.default!r} is not one of the options")
        return self

    def takes(self, answer: str) -> bool:
        """Return whether a text may be the answer."""
        return not self.only_options or answer in self.options


class AskApproval(_Value):
    """A request for a person's approval of a tool call."""

    kind: Literal["approval"] = "approval"
    tool_name: str
    params: dict[str, Any]
    reason: str
    """Why approval is needed."""


class AskAgent(_Value):
    """A message to another agent; its answer becomes the call's result and is not delivered elsewhere."""

    kind: Literal["agent"] = "agent"
    agent_id: AgentId
    message: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_MESSAGE_CHARS)]
    timeout_s: Annotated[float, Field(gt=0, le=MAX_WAIT_S)] | None = None


class Pause(_Value):
    """Continue at a point in time."""

    kind: Literal["timer"] = "timer"
    until: AwareDatetime


class AwaitMessages(_Value):
    """Messages of other agents of the same orchestration. Only the orchestration tools ask for it."""

    kind: Literal["message"] = "message"
    sender: AwaitedSender
    correlation_ids: Annotated[tuple[str, ...], Field(max_length=100)] = ()
    """What the messages answer: questions, or runs of children. All must be answered. Empty with ``any``."""
    agent_ids: Annotated[tuple[str, ...], Field(max_length=100)] = ()
    """The agents of the orchestration whose messages are expected."""
    timeout_s: Annotated[float, Field(gt=0, le=MAX_WAIT_S)] | None = None


class AwaitOrchestration(_Value):
    """The end of an orchestration that the agent started. A run that is canceled meanwhile cancels it."""

    kind: Literal["orchestration"] = "orchestration"
    orchestration_id: str
    master_run_id: str
    """The run whose end is the answer."""


class CallClientTool(_Value):
    """A call of a tool that the caller of the run executes."""

    kind: Literal["client_tool"] = "client_tool"
    tool_name: str
    params: dict[str, Any]
    expires_in_s: Annotated[float, Field(gt=0, le=MAX_WAIT_S)] | None = None
    """None waits for ever."""
    default: str | None = None
    """The result if none is given in time. Without it the call has failed then."""


WaitRequest = Annotated[
    AskUser | AskApproval | AskAgent | AwaitMessages | AwaitOrchestration | CallClientTool | Pause,
    Field(discriminator="kind"),
]

wait_adapter: TypeAdapter[WaitRequest] = TypeAdapter(WaitRequest, config={"defer_build": True})
"""Parses a request from JSON."""


_PHRASES: Mapping[str, str] = {
    "user": "a person's answer",
    "approval": "a person's permission",
    "agent": "another agent",
    "timer": "its time",
    "message": "other agents of its orchestration",
    "orchestration": "the end of an orchestration",
    "client_tool": "a tool of its caller",
}


def describe_waits(kinds: Iterable[str]) -> str:
    """Return a phrase that says what a run waits for, from the kinds of its open waits; empty without any."""
    return " and ".join(dict.fromkeys(_PHRASES.get(kind, kind.replace("_", " ")) for kind in kinds))


class Answer(_Value):
    """A person's answer to a waiting run.

    Attributes:
        text: The answer to a question: one of its options, or in other words unless it has `only_options`.
        approve: The decision on a call. `text` may give a reason.
        remember: With `approve`, for agents of orchestrations: all agents of the tree may make such calls from now on.
            That is any call of the tool, or the same shell command.
    """

    text: _AnswerText | None = None
    approve: StrictBool | None = None
    remember: StrictBool = False
    by: Annotated[OneLine, StringConstraints(max_length=200)] | None = None
    """The person who answers, for the record."""


class RunAnswer(Answer):
    """The body of an answer over HTTP."""

    wait_id: Annotated[str, StringConstraints(pattern=r"^wait_[0-9A-Z]{26}$")] | None = None
    """The wait that is answered, if the run has several."""


@authored(
    tool_call_id=ADDRESSEE,
    content=MESSAGE,
    is_error=FREE,
)
class ToolResult(Body):
    """The result of a call that the caller of a run executed."""

    tool_call_id: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    content: str | Annotated[list[ContentBlock], Field(max_length=200)] = ""
    """Text, or content blocks (text, image, document)."""
    is_error: StrictBool = False
    """Whether the call failed; the content then says why."""


@authored(
    results=PARTS,
)
class ToolResults(Body):
    """Results of calls that a run waits for, in any order: of all of them, or of some."""

    results: Annotated[list[ToolResult], Field(min_length=1, max_length=MAX_CLIENT_TOOLS)]


class WaitView(View):
    """A wait of a run."""

    id: str
    run_id: str
    thread_id: str
    agent_id: str
    """The agent that waits."""
    tool_call_id: str
    request: WaitRequest
    child_run_id: str | None
    """The run whose end is the answer, for waits on an agent."""
    due_at: datetime | None
    created_at: datetime


def questions_among(waits: Iterable[WaitView]) -> list[WaitView]:
    """Return the waits that a person ends."""
    return [wait for wait in waits if wait.request.kind in ANSWERABLE]


def describe_question(wait: WaitView) -> str:
    """Return a question in words, for a model or a person."""
    match wait.request:
        case AskUser(question=question, options=options):
            return "\n".join([question, *(f"- {option}" for option in options)])
        case AskApproval(tool_name=tool, params=params, reason=reason):
            shown = json.dumps(params, ensure_ascii=False, indent=2)
            return f"May {wait.agent_id} call {tool}? {reason}\n{shown}"
        case _:
            raise AssertionError(f"unreachable: a person does not end a wait of the kind {wait.request.kind!r}")


_ADVICE: Final[dict[OutageReason, str]] = {
    "down": "Nothing is to be done here, unless its address is wrong.",
    "key_missing": "Restart the workers with the key; a worker that has it goes on.",
    "key_refused": "Give the workers a valid key and restart them, or permit this one.",
    "quota": "Raise the limit or the credit of its account, or give the workers another key.",
    "rate_limit": "Nothing is to be done, unless it lasts.",
    "model_missing": "Give the agent a model that the provider has.",
}


def advice_for(outage: OutageReason) -> str:
    """Return the advice for an operator."""
    return _ADVICE[outage]


class HoldDetail(BaseModel):
    """A model provider that cannot be used, as a held run stores it."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="ignore")

    provider: str
    outage: OutageReason
    profile: str | None = None
    """The credential profile; None if it is about none."""
    model: str | None = None
    """The model, if only this one is affected."""
    message: str
    """The failure, in the words of the engine."""
    tries: int = 1
    """Attempts that met it one after the other."""

    @property
    def advice(self) -> str:
        """What to do."""
        return advice_for(self.outage)

    @property
    def summary(self) -> str:
        """What is wrong with which provider, key or model, in a few words."""
        key = "the key" if self.profile is None else f"the key {self.profile!r}"
        match self.outage:
            case "down":
                return f"{self.provider} does not answer" + (f" for {self.model}" if self.model else "")
            case "key_missing":
                return f"{self.provider} has no key on this worker"
            case "key_refused":
                return f"{self.provider} refuses {key}" + (f" for {self.model}" if self.model else "")
            case "quota":
                return f"{self.provider} refuses {key}: its account may not spend more"
            case "rate_limit":
                return f"{self.provider} limits {key}" + (f" for {self.model}" if self.model else "")
            case "model_missing":
                return f"{self.provider} has no model {self.model!r}"


def detail_of(outage: Outage, message: str, *, tries: int = 1) -> HoldDetail:
    """Return the detail of an outage that is stored and shown.

    Args:
        message: The failure, without secrets.
        tries: Attempts that met it one after the other.
    """
    return HoldDetail(
        provider=outage.provider,
        outage=outage.reason,
        profile=outage.profile,
        model=outage.model,
        message=message,
        tries=tries,
    )


class HoldView(BaseModel):
    """Why a queued run is held: its model provider cannot be used now."""

    reason: HoldReason
    outage: OutageReason
    provider: str
    profile: str | None = Field(None, description="The credential profile of the workers.")
    model: str | None = Field(None, description="The model, if only this one is affected.")
    message: str = Field(description="What the provider answered.")
    advice: str = Field(description="What an operator can do.")
    since: datetime
    next_try_at: datetime | None = Field(description="Null: as soon as a worker with a key is free.")

    @classmethod
    def of(cls, reason: HoldReason, detail: HoldDetail, since: datetime, until: datetime | None) -> "HoldView":
        """Return the view of a hold."""
        shown = detail.model_dump(include={"outage", "provider", "profile", "model", "message"})
        return cls(reason=reason, **shown, advice=detail.advice, since=since, next_try_at=until)
