"""What an evaluator in Python gets, and what it says."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

EVALUATOR_CALL: Final = "nova/evaluator:"
"""Before the name of an evaluator: the name under which a worker calls it. No tool has such a name."""
MAX_REASON_CHARS: Final = 2_000


class JudgedCall(BaseModel):
    """A tool call of the answer."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    tool: str
    arguments: dict[str, Any] = {}


class JudgedAnswer(BaseModel):
    """An answer of an evaluation, as evaluators in Python get it.

    Attributes:
        input: The text of the example's message.
        answer: Empty if the run failed, or has no text.
        output: The structured answer of an agent with an output schema.
        expected: The example's expected answer; None if it has none.
        calls: The tool calls, in their order.
        status: How the run ended.
        error: Of a run that failed.
        steps: How many steps it had.
        cost_usd: None where a price is unknown.
        latency_s: From its start to its end.
    """

    model_config = ConfigDict(defer_build=True, frozen=True)

    input: str = ""
    answer: str = ""
    output: Any = None
    expected: Any = None
    calls: tuple[JudgedCall, ...] = ()
    status: Literal["succeeded", "failed"] = "succeeded"
    error: str | None = None
    steps: int = 0
    cost_usd: float | None = None
    latency_s: float | None = None


class Judgement(BaseModel):
    """What an evaluator in Python says of an answer.

    Attributes:
        score: From 0 to 1.
        reason: Why, in a sentence.
        passed: Whether it is good enough; None compares the score with the evaluation's `at_least`.
    """

    model_config = ConfigDict(defer_build=True, frozen=True)

    score: Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)]
    reason: str = ""
    passed: Annotated[bool, Field(strict=True)] | None = None
