"""Evaluators: rules by which an answer is judged. A wrong rule is refused when it is written, not when it judges.

Names have the words of the API. `domain.evaluations.rules.evaluators` judges.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, StrictBool, StringConstraints, TypeAdapter, model_validator

from nova_workers.contracts.bodies import Body, Name
from nova_workers.contracts.content import JsonObject, storable

_CHECKS: Final = "nova_workers.base.json_schemas"
"""Imported by name at the first pattern or schema: it loads libraries that the client does not need."""

MAX_TEXTS: Final = 50
MAX_CALL_RULES: Final = 50
_MAX_STEPS: Final = 20
_STEP: Final = re.compile(r"\.([A-Za-z_][A-Za-z0-9_-]{0,99})|\[(0|[1-9][0-9]{0,5})\]|\[\"([^\"\\\]]{1,100})\"\]")

Path = tuple[str | int, ...]


def parse_path(path: str) -> Path:
    """Return the steps of a JSON path that leads to one value, such as ``$.items[0]["unit price"]``.

    Raises:
        ValueError: It is none, or one that may lead to several values.
    """
    if not path.startswith("$"):
        raise ValueError("a path begins with $, such as $.items[0].price")
    steps: list[str | int] = []
    at = 1
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None or len(steps) == _MAX_STEPS:
            raise ValueError(
                f"{path[at : at + 20]!r} is no step of a path; write up to {_MAX_STEPS} of .name, [0] and "
                '["a name"]. Wildcards and filters lead to several values, and are not taken'
            )
        name, index, quoted = found.groups()
        steps.append(int(index) if index is not None else name or quoted)
        at = found.end()
    return tuple(steps)


def _path(path: str) -> str:
    parse_path(path)
    return path


def _pattern(pattern: str) -> str:
    checks = import_module(_CHECKS)
    try:
        checks.LinearPattern(pattern)
    except checks.InvalidSchema as error:
        raise ValueError(f"it is no pattern that is judged in linear time: {error.why}") from error
    return pattern


def _schema(schema: JsonObject) -> JsonObject:
    problem = import_module(_CHECKS).schema_problem(schema, "schema")
    if problem is not None:
        raise ValueError(": ".join(problem))
    return schema


_Text = Annotated[str, StringConstraints(min_length=1, max_length=10_000), AfterValidator(storable)]
_JsonPath = Annotated[str, StringConstraints(min_length=1, max_length=1_000), AfterValidator(_path)]
_Pattern = Annotated[str, StringConstraints(min_length=1, max_length=1_000), AfterValidator(_pattern)]
_Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Answered(Body):
    """The run succeeded, and has an answer."""

    kind: Literal["answered"] = "answered"


class Exact(Body):
    """The answer is the expected one."""

    kind: Literal["exact"] = "exact"
    expected: _Text | None = None
    """The expected answer; null takes the example's."""
    ignore_case: StrictBool = False
    ignore_spaces: StrictBool = True
    """Whether any run of blanks and line ends is as good as one blank, and those at both ends do not matter."""


class Contains(Body):
    """The answer has texts in it, or has none of them. The score is the part of them that is right."""

    kind: Literal["contains"] = "contains"
    texts: Annotated[tuple[_Text, ...], Field(max_length=MAX_TEXTS)] = ()
    """Empty takes the example's expected answer."""
    which: Literal["all", "any", "none"] = "all"
    ignore_case: StrictBool = True


class Pattern(Body):
    """A regular expression occurs in the answer. It has no references back and no looks ahead or behind."""

    kind: Literal["pattern"] = "pattern"
    pattern: _Pattern
    occurs: StrictBool = True
    """False: it must not occur."""


class FitsSchema(Body):
    """The answer is JSON that fulfils a schema."""

    kind: Literal["json_schema"] = "json_schema"
    json_schema: Annotated[JsonObject, AfterValidator(_schema)]


class PathEquals(Body):
    """The value at a path of the answer, which is JSON, equals one."""

    kind: Literal["json_path"] = "json_path"
    path: _JsonPath
    expected: Any = None
    """The value, which may be null if it is given; left out it is the example's."""


class Number(Body):
    """A number of the answer is near the expected one: by less than either tolerance."""

    kind: Literal["number"] = "number"
    path: _JsonPath | None = None
    """Where it is in an answer that is JSON; null takes the only number in the text."""
    expected: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Null takes the example's."""
    absolute: _Amount = 0.0
    relative: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.0
    """A part of the expected number: 0.05 is 5 %."""


class Similarity(Body):
    """The answer means about the same as the expected one, by the fleet's embedding model. The score is the cosine."""

    kind: Literal["similarity"] = "similarity"
    expected: _Text | None = None
    """The expected answer; null takes the example's."""
    at_least: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.8
    """The least cosine of both vectors. What is good depends on the model: look at the scores of known answers."""


class Function(Body):
    """A function in Python judges the answer: one that a project or a package declares with ``@evaluator``."""

    kind: Literal["python"] = "python"
    function: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,39}:[A-Za-z_][A-Za-z0-9_]{0,63}$")]
    """Project or package, and function: ``shop:polite``."""
    at_least: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 1.0
    """The least score that passes, where the function gives a score alone."""


class Latency(Body):
    """The run took at most so long, in seconds."""

    kind: Literal["latency"] = "latency"
    at_most_s: _Amount


class Cost(Body):
    """The run cost at most so much."""

    kind: Literal["cost"] = "cost"
    at_most_usd: _Amount


class Steps(Body):
    """The run had at most so many steps."""

    kind: Literal["steps"] = "steps"
    at_most: Annotated[int, Field(ge=1, le=1_000_000)]


class CallRule(Body):
    """A tool call that is wanted."""

    tool: Name
    arguments: JsonObject = Field(default_factory=dict)
    """Arguments that it has, among others; objects are compared likewise, lists as a whole."""


class Trajectory(Body):
    """Which tools the run called. The score is the part of the conditions that hold."""

    kind: Literal["trajectory"] = "trajectory"
    called: Annotated[tuple[CallRule, ...], Field(max_length=MAX_CALL_RULES)] = ()
    """Each by a call of its own."""
    in_order: StrictBool = False
    """Whether these calls have the order of the list; others may be between them."""
    not_called: Annotated[tuple[Name, ...], Field(max_length=MAX_CALL_RULES)] = ()
    at_most: Annotated[int, Field(ge=0, le=100_000)] | None = None
    """Most tool calls in all."""

    @model_validator(mode="after")
    def _has_a_condition(self) -> Self:
        if not self.called and not self.not_called and self.at_most is None:
            raise ValueError("give called, not_called or at_most: without any, each run would pass")
        both = {rule.tool for rule in self.called} & set(self.not_called)
        if both:
            raise ValueError(f"{min(both)!r} is in called and in not_called: no run would pass")
        return self


class Judge(Body):
    """A model judges the answer by a rubric: each answer by a score, or both answers to an example at once.

    Its calls are runs of the reserved agent `evaluation-judge` without tools. What it did not answer in the right form,
    and what its budget did not suffice for, is not judged.
    """

    kind: Literal["judge"] = "judge"
    rubric: _Text | None = None
    """What a good answer has. It comes beside the example's own rubric; one of the two is needed."""
    budget_usd: Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)]
    """Most that its calls may cost, within the budget of the evaluation."""
    lowest: Annotated[int, Field(ge=-1_000, le=1_000)] = 1
    """The score of the worst answer."""
    highest: Annotated[int, Field(ge=-1_000, le=1_000)] = 5
    passes_at: Annotated[float, Field(ge=-1_000, le=1_000, allow_inf_nan=False)] | None = None
    """The least score that passes; null is three quarters of the way from the lowest to the highest."""
    pairwise: StrictBool = False
    """Whether it compares the answers of both versions, twice with places swapped, and gives no scores of its own. Two
    judgements that disagree are a tie."""
    calibrate_by: Annotated[Name, StringConstraints(max_length=64)] | None = "rating"
    """The name of the feedback that it is compared with, on the answers that people rated; null leaves this out, and so
    does `pairwise`."""
    model: Name | None = None
    """As that of an agent, and so the fields below; null takes the fleet's default."""
    engine: Annotated[Name, StringConstraints(max_length=64)] | None = None
    engine_config: JsonObject = Field(default_factory=dict)
    temperature: Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    thinking_budget_tokens: Annotated[int, Field(ge=1_024, le=1_000_000)] | None = None

    @model_validator(mode="after")
    def _has_a_scale(self) -> Self:
        if self.lowest >= self.highest:
            raise ValueError("lowest has to be below highest")
        if self.passes_at is not None and not self.lowest <= self.passes_at <= self.highest:
            raise ValueError("passes_at has to be from lowest to highest")
        if self.temperature is not None and self.thinking_budget_tokens is not None:
            raise ValueError("temperature and thinking_budget_tokens exclude each other")
        return self

    @property
    def least_passing(self) -> float:
        """The least score that passes, on the scale of the judge."""
        return self.lowest + 0.75 * (self.highest - self.lowest) if self.passes_at is None else self.passes_at


Evaluator = Annotated[
    Answered
    | Exact
    | Contains
    | Pattern
    | FitsSchema
    | PathEquals
    | Number
    | Similarity
    | Function
    | Latency
    | Cost
    | Steps
    | Trajectory
    | Judge,
    Field(discriminator="kind"),
]
evaluator_adapter: TypeAdapter[Evaluator] = TypeAdapter(Evaluator, config={"defer_build": True})
