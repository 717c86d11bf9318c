"""What a run may wait for: the result of a tool call that comes from outside, in seconds or in weeks.

A tool that must wait returns one of these requests instead of a result. The run then releases its worker slot, its lock
and its memory; the answer is written as the call's result, and the run continues from there.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

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

from nova_workers.contracts.agents import AgentId
from nova_workers.contracts.bodies import View
from nova_workers.vocabulary import ANSWERABLE, AwaitedSender, WaitKind

__all__ = [
    "ANSWERABLE",
    "MAX_ANSWER_CHARS",
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
    "Pause",
    "RunAnswer",
    "WaitKind",
    "WaitRequest",
    "WaitView",
    "describe_waits",
    "wait_adapter",
]


MAX_WAIT_S = 365 * 86_400.0
"""Longest wait: one year, in seconds."""

MAX_DELEGATION_DEPTH = 3
"""Longest chain of agents that ask each other; the last one in it cannot ask another agent."""

MAX_ANSWER_CHARS = 10_000
"""Longest question, and longest answer to one."""

MAX_OPTION_CHARS = 200

MAX_MESSAGE_CHARS = 200_000
"""Longest message to an agent."""

_AnswerText = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_ANSWER_CHARS)]
_Option = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_OPTION_CHARS)]


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class AskUser(_Value):
    """A question to a person."""

    kind: Literal["user"] = "user"
    question: _AnswerText
    options: Annotated[tuple[_Option, ...], Field(max_length=20)] = ()
    """The choices; empty accepts any text."""
    expires_in_s: Annotated[float, Field(gt=0, le=MAX_WAIT_S)] | None = None
    """None waits for ever."""
    default: _AnswerText | None = None
    """The answer if none is given in time."""
    escalate_to: AgentId | None = None
    """The agent that is asked if no answer is given in time."""

    @model_validator(mode="after")
    def _is_consistent(self) -> "AskUser":
        if (self.default is not None or self.escalate_to is not None) and self.expires_in_s is None:
            raise ValueError("default and escalate_to are for questions with expires_in_s; give that too")
        if self.default is not None and self.escalate_to is not None:
            raise ValueError("give default or escalate_to, not both")
        if self.default is not None and self.options and self.default not in self.options:
            raise ValueError(f"default {self.default!r} is not one of the options")
        return self


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


WaitRequest = Annotated[
    AskUser | AskApproval | AskAgent | AwaitMessages | AwaitOrchestration | Pause, Field(discriminator="kind")
]

wait_adapter: TypeAdapter[WaitRequest] = TypeAdapter(WaitRequest)
"""Parses a request from JSON."""


_PHRASES: Mapping[str, str] = {
    "user": "a person's answer",
    "approval": "a person's permission",
    "agent": "another agent",
    "timer": "its time",
    "message": "other agents of its orchestration",
    "orchestration": "the end of an orchestration",
}


def describe_waits(kinds: Iterable[str]) -> str:
    """Return a phrase that says what a run waits for, from the kinds of its open waits; empty without any."""
    return " and ".join(dict.fromkeys(_PHRASES[kind] for kind in kinds))


class Answer(_Value):
    """A person's answer to a waiting run.

    Attributes:
        text: The answer to a question: one of its options, if it has any.
        approve: The decision on a call. `text` may give a reason.
        remember: With `approve`, for agents of orchestrations: all agents of the tree may make such calls from now on.
            That is any call of the tool, or the same shell command.
    """

    text: _AnswerText | None = None
    approve: StrictBool | None = None
    remember: StrictBool = False
    by: Annotated[str, StringConstraints(max_length=200)] | None = None
    """The person who answers, for the record."""


class RunAnswer(Answer):
    """The body of an answer over HTTP."""

    wait_id: Annotated[str, StringConstraints(pattern=r"^wait_[0-9A-Z]{26}$")] | None = None
    """The wait that is answered, if the run has several."""


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
