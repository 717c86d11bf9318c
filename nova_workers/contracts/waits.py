"""What a run may wait for: a tool call whose result comes from outside, in a moment or in weeks.

A tool that must wait answers with one of these in place of a result. The run then gives up its slot, its lock and its
memory; whoever answers writes the call's result, and the run goes on where it stood.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, model_validator

from nova_workers.contracts.agents import AgentId
from nova_workers.contracts.bodies import View
from nova_workers.vocabulary import WaitKind

__all__ = [
    "ANSWERABLE",
    "MAX_DELEGATION_DEPTH",
    "MAX_MESSAGE_CHARS",
    "MAX_OPTION_CHARS",
    "MAX_WAIT_S",
    "MAX_WORDS_CHARS",
    "Answer",
    "AskAgent",
    "AskApproval",
    "AskUser",
    "Pause",
    "RunAnswer",
    "WaitKind",
    "WaitRequest",
    "WaitView",
    "awaited_words",
    "wait_adapter",
]


ANSWERABLE: tuple[WaitKind, ...] = ("user", "approval")
"""Kinds of waits that a person ends by an answer."""

MAX_WAIT_S = 365 * 86_400.0
"""Longest wait: one year, in seconds."""

MAX_DELEGATION_DEPTH = 3
"""How many agents may stand one behind the other: an agent that was asked by one that was asked by one asks nobody."""

MAX_WORDS_CHARS = 10_000
"""Longest question, and longest answer to one."""

MAX_OPTION_CHARS = 200

MAX_MESSAGE_CHARS = 200_000
"""Longest message to an agent."""

_Words = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_WORDS_CHARS)]
_Option = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_OPTION_CHARS)]


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class AskUser(_Value):
    """A question to a person."""

    kind: Literal["user"] = "user"
    question: _Words
    options: Annotated[tuple[_Option, ...], Field(max_length=20)] = ()
    """What there is to choose from; empty takes any text."""
    expires_in_s: Annotated[float, Field(gt=0, le=MAX_WAIT_S)] | None = None
    """None waits for ever."""
    default: _Words | None = None
    """The answer where nobody gives one in time."""
    escalate_to: AgentId | None = None
    """The agent that is asked where nobody answers in time."""

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
    """May this call be made? A person decides."""

    kind: Literal["approval"] = "approval"
    tool_name: str
    params: dict[str, Any]
    reason: str
    """Why a person is asked."""


class AskAgent(_Value):
    """A message for another agent; its answer is the call's result, and goes nowhere else."""

    kind: Literal["agent"] = "agent"
    agent_id: AgentId
    message: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_MESSAGE_CHARS)]
    timeout_s: Annotated[float, Field(gt=0, le=MAX_WAIT_S)] | None = None


class Pause(_Value):
    """Go on at a point in time."""

    kind: Literal["timer"] = "timer"
    until: AwareDatetime


WaitRequest = Annotated[AskUser | AskApproval | AskAgent | Pause, Field(discriminator="kind")]

wait_adapter: TypeAdapter[WaitRequest] = TypeAdapter(WaitRequest)
"""Parses a request from JSON."""


_AWAITED: Mapping[str, str] = {
    "user": "a person's answer",
    "approval": "a person's permission",
    "agent": "another agent",
    "timer": "its time",
}


def awaited_words(kinds: Iterable[str]) -> str:
    """Return what a run waits for, in words, from the kinds of its open waits; empty without any."""
    return " and ".join(dict.fromkeys(_AWAITED[kind] for kind in kinds))


class Answer(_Value):
    """What a person says to a run that waits.

    Attributes:
        text: The answer to a question: one of its options, if it has any.
        approve: The decision on a call. `text` may say why.
    """

    text: _Words | None = None
    approve: bool | None = None
    by: Annotated[str, StringConstraints(max_length=200)] | None = None
    """Who answers, for the record."""


class RunAnswer(Answer):
    """The body of an answer over HTTP."""

    wait_id: Annotated[str, StringConstraints(pattern=r"^wait_[0-9A-Z]{26}$")] | None = None
    """Which wait is meant, where the run waits for several answers."""


class WaitView(View):
    """What a run waits for."""

    id: str
    run_id: str
    thread_id: str
    agent_id: str
    """The agent that waits."""
    tool_call_id: str
    request: WaitRequest
    child_run_id: str | None
    """The run whose end is the answer, where it is one."""
    due_at: datetime | None
    created_at: datetime
