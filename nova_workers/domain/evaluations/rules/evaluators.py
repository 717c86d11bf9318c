"""Judges the outcome of a run by evaluators: each verdict is passed, failed or not judged, with a reason and a score.

`not judged` means that the evaluator cannot know: an expected answer is missing, a cost is unknown, the run was
canceled. It is never a success. What is wrong with the answer itself, such as JSON that cannot be read, is a failure.

All is bounded: answers over `MAX_JUDGED_CHARS` are not judged, patterns have the linear engine, and a JSON schema that
may multiply work is checked in a child process.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any, Final, Literal

import orjson

from nova_workers.base.json_schemas import JsonSchema, LinearPattern, json_in
from nova_workers.base.vocabulary import VerdictStatus
from nova_workers.contracts.bodies import Body
from nova_workers.contracts.content import ContentBlock, JsonObject
from nova_workers.contracts.evaluators import (
    Answered,
    CallRule,
    Contains,
    Cost,
    Exact,
    FitsSchema,
    Judge,
    Latency,
    Number,
    PathEquals,
    Pattern,
    Similarity,
    Steps,
    Trajectory,
    parse_path,
)
from nova_workers.contracts.http.evaluations import MAX_ANSWER_CHARS

MAX_JUDGED_CHARS: Final = 200_000
"""A pattern takes 0.6 s for so many at worst."""
MAX_JUDGED_CALLS: Final = 10_000
AWAITED: Final = "the judge has not answered"
"""The reason of a verdict until a model has judged the answer, and for good if the evaluation ends before."""
MAX_COMPARED_CHARS: Final = 16_000
"""About 4,000 tokens: half the limit of common embedding servers."""

Rule = (
    Answered
    | Exact
    | Contains
    | Pattern
    | FitsSchema
    | PathEquals
    | Number
    | Latency
    | Cost
    | Steps
    | Trajectory
    | Judge
)
"""An evaluator that needs the outcome alone."""

_NUMBER: Final = re.compile(r"[-+]?\d[\d,]{0,40}(?:\.\d{1,40})?(?:[eE][-+]?\d{1,3})?")
_GROUPED: Final = re.compile(r"[-+]?\d{1,3}(,\d{3})+(?![\d,])")
_COMPILED: Final = 64
"""Patterns and schemas that stay compiled: those of an evaluation judge each of its examples."""
_QUOTED_CHARS: Final = 200
_MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool call of the run."""

    tool: str
    arguments: JsonObject = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run did, as evaluators see it.

    Attributes:
        status: How it ended.
        input: The example's message.
        text: Its answer; None if it has none.
        output: Its structured answer; None if it has none.
        expected: The example's expected answer; None if it has none.
        rubric: The example's; None if it has none.
        calls: Its tool calls, in their order.
        steps: How many steps it had.
        cost_usd: None where a price is unknown.
        latency_s: From its start to its end; None if it never began.
        error: Why it failed.
    """

    status: Literal["succeeded", "failed", "canceled"]
    text: str | None = None
    output: Any = None
    expected: Any = None
    rubric: str | None = None
    calls: Sequence[ToolUse] = ()
    steps: int = 0
    cost_usd: float | None = None
    latency_s: float | None = None
    error: str | None = None
    input: Sequence[ContentBlock] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an evaluator says of an outcome.

    Attributes:
        score: From 0 to 1; None if it is not judged.
        reason: Why, in a sentence.
    """

    status: VerdictStatus
    score: float | None
    reason: str


class _NotJudged(Exception):
    """The evaluator cannot know. Its text is the reason."""


class _Wrong(Exception):
    """The answer is wrong. Its text is the reason."""


async def evaluate(evaluator: Rule, outcome: Outcome) -> Verdict:
    """Judge an outcome. It never raises for what a model answered."""
    try:
        _refuse_canceled(outcome)
        if isinstance(evaluator, FitsSchema):
            return await _fits(evaluator, outcome)
        return _JUDGES[type(evaluator)](evaluator, outcome)
    except (RecursionError, _NotJudged, _Wrong) as reason:
        return _verdict_of(reason)


def compared_texts(evaluator: Similarity, outcome: Outcome) -> tuple[str, str] | Verdict:
    """Return the answer and the expected one, or the verdict if there is nothing to compare."""
    try:
        _refuse_canceled(outcome)
        expected = _expected_text(outcome) if evaluator.expected is None else evaluator.expected
        answer = _text(outcome)
        if not answer.strip():
            raise _Wrong("the answer is empty")
        for what, text in (("answer", answer), ("expected answer", expected)):
            if len(text) > MAX_COMPARED_CHARS:
                raise _NotJudged(f"the {what} has {len(text)} characters; at most {MAX_COMPARED_CHARS} are compared")
        return answer, expected
    except (_NotJudged, _Wrong) as reason:
        return _verdict_of(reason)


def _refuse_canceled(outcome: Outcome) -> None:
    if outcome.status == "canceled":
        raise _NotJudged("the run was canceled")


def _verdict_of(reason: RecursionError | _NotJudged | _Wrong) -> Verdict:
    match reason:
        case RecursionError():
            return Verdict("not_judged", None, "the answer is nested too deep")
        case _NotJudged():
            return Verdict("not_judged", None, str(reason))
        case _Wrong():
            return Verdict("failed", 0.0, str(reason))


def _answered(evaluator: Answered, outcome: Outcome) -> Verdict:
    del evaluator
    if outcome.status == "failed":
        raise _Wrong("the run failed")
    has_answer = outcome.output is not None or bool((outcome.text or "").strip())
    return _verdict(has_answer, "the run has an answer", "the run has no answer")


def _exact(evaluator: Exact, outcome: Outcome) -> Verdict:
    expected = evaluator.expected
    if expected is None:
        expected = _expected(outcome)
    if not isinstance(expected, str):
        is_same = _equal(_json_of(outcome), expected)
        return _verdict(is_same, "the answer equals the expected value", "the answer is another value than expected")
    wanted, got = (
        _comparable(text, spaces=evaluator.ignore_spaces, case=evaluator.ignore_case)
        for text in (expected, _text(outcome))
    )
    return _verdict(
        wanted == got, "the answer is the expected one", f"the answer is {_quoted(got)}, not {_quoted(wanted)}"
    )


def _contains(evaluator: Contains, outcome: Outcome) -> Verdict:
    texts = evaluator.texts or (_expected_text(outcome),)
    answer = _comparable(_text(outcome), case=evaluator.ignore_case)
    found = [_comparable(text, case=evaluator.ignore_case) in answer for text in texts]
    match evaluator.which:
        case "any":
            is_good = any(found)
            return _verdict(is_good, "one of the texts occurs", f"none of {len(texts)} texts occurs")
        case "all":
            right = found
        case "none":
            right = [not each for each in found]
    if all(right):
        return Verdict("passed", 1.0, f"as wanted: {len(texts)} of {len(texts)} texts")
    first = texts[right.index(False)]
    problem = "is missing" if evaluator.which == "all" else "must not occur"
    return Verdict("failed", sum(right) / len(right), f"{_quoted(first)} {problem}")


def _pattern(evaluator: Pattern, outcome: Outcome) -> Verdict:
    occurs = _compiled_pattern(evaluator.pattern).occurs_in(_text(outcome))
    reason = "the pattern occurs" if occurs else "the pattern does not occur"
    return _verdict(occurs == evaluator.occurs, reason, reason)


async def _fits(evaluator: FitsSchema, outcome: Outcome) -> Verdict:
    schema = _compiled_schema(orjson.dumps(evaluator.json_schema))
    problems = await schema.problems(_json_of(outcome))
    if not problems:
        return Verdict("passed", 1.0, "the answer fulfils the schema")
    raise _Wrong(f"{problems[0].place}: {problems[0].message[:_QUOTED_CHARS]}")


def _path_equals(evaluator: PathEquals, outcome: Outcome) -> Verdict:
    is_given = "expected" in evaluator.model_fields_set
    expected = evaluator.expected if is_given else _expected(outcome)
    value = _value_at(evaluator.path, _json_of(outcome))
    return _verdict(
        _equal(value, expected),
        f"{evaluator.path} is {_shown(expected)}",
        f"{evaluator.path} is {_shown(value)}, not {_shown(expected)}",
    )


def _number(evaluator: Number, outcome: Outcome) -> Verdict:
    expected = evaluator.expected
    if expected is None:
        expected = _as_number(_expected(outcome))
        if expected is None:
            raise _NotJudged("the example's expected answer is no number")
    if evaluator.path is None:
        value = _only_number(_text(outcome))
    else:
        found = _value_at(evaluator.path, _json_of(outcome))
        value = _as_number(found)
        if value is None:
            raise _Wrong(f"{evaluator.path} is {_shown(found)}, which is no number")
    allowed = max(evaluator.absolute, evaluator.relative * abs(expected))
    # What decimal numbers lose in binary is within any tolerance: 0.3 is 0.1 + 0.2.
    is_near = abs(value - expected) <= allowed or math.isclose(value, expected, rel_tol=1e-12)
    reason = f"{value:g} is {'' if is_near else 'not '}within {allowed:g} of {expected:g}"
    return _verdict(is_near, reason, reason)


def _judge(evaluator: Judge, outcome: Outcome) -> Verdict:
    """Return the verdict that holds until the model has judged. An answer that is not there fails without it."""
    answer = _text(outcome)
    if not answer.strip():
        raise _Wrong("the answer is empty")
    if evaluator.rubric is None and outcome.rubric is None:
        raise _NotJudged("there is no rubric: neither the judge nor the example has one")
    if len(answer) > MAX_ANSWER_CHARS:
        raise _NotJudged(f"the answer has {len(answer)} characters; a model judges at most {MAX_ANSWER_CHARS}")
    raise _NotJudged(AWAITED)


def _latency(evaluator: Latency, outcome: Outcome) -> Verdict:
    return _at_most("took", outcome.latency_s, evaluator.at_most_s, "s")


def _cost(evaluator: Cost, outcome: Outcome) -> Verdict:
    return _at_most("cost", outcome.cost_usd, evaluator.at_most_usd, "USD")


def _steps(evaluator: Steps, outcome: Outcome) -> Verdict:
    return _at_most("had", outcome.steps, evaluator.at_most, "steps")


def _at_most(verb: str, value: float | None, most: float, unit: str) -> Verdict:
    if value is None or not math.isfinite(value):
        raise _NotJudged(f"how much the run {verb}, in {unit}, is not known")
    reason = f"the run {verb} {value:g} {unit}, at most {most:g} are wanted"
    return _verdict(value <= most, reason, reason)


def _trajectory(evaluator: Trajectory, outcome: Outcome) -> Verdict:
    if len(outcome.calls) > MAX_JUDGED_CALLS:
        raise _NotJudged(f"the run has {len(outcome.calls)} tool calls; at most {MAX_JUDGED_CALLS} are judged")
    problems = _missing_calls(evaluator, outcome.calls)
    used = {call.tool for call in outcome.calls}
    problems += [f"{tool!r} was called" for tool in evaluator.not_called if tool in used]
    if evaluator.at_most is not None and len(outcome.calls) > evaluator.at_most:
        problems.append(f"{len(outcome.calls)} tool calls, at most {evaluator.at_most} are wanted")
    conditions = len(evaluator.called) + len(evaluator.not_called) + (evaluator.at_most is not None)
    if not problems:
        return Verdict("passed", 1.0, f"{conditions} of {conditions} conditions hold")
    return Verdict("failed", 1 - len(problems) / conditions, "; ".join(problems)[:_QUOTED_CHARS])


def _missing_calls(evaluator: Trajectory, calls: Sequence[ToolUse]) -> list[str]:
    """Return a problem for each wanted call that the run has not made."""
    fitting = [[at for at, call in enumerate(calls) if _fits_rule(call, rule)] for rule in evaluator.called]
    if evaluator.in_order:
        has_call = _matched_in_order(fitting)
    else:
        has_call = _matched(fitting)
    where = " in this place of the order" if evaluator.in_order else ""
    return [
        f"no call of {rule.tool!r}{' with these arguments' if rule.arguments else ''}{where}"
        for rule, has in zip(evaluator.called, has_call, strict=True)
        if not has
    ]


def _matched_in_order(fitting: Sequence[Sequence[int]]) -> list[bool]:
    """Return for which rules there is a call after that of the rule before; the earliest call leaves most to others."""
    matched: list[bool] = []
    last = -1
    for options in fitting:
        found = next((at for at in options if at > last), None)
        matched.append(found is not None)
        last = last if found is None else found
    return matched


def _matched(fitting: Sequence[Sequence[int]]) -> list[bool]:
    """Return for which rules there is a call of their own, of as many as possible: a matching in a bipartite graph."""
    # A rule needs no more options than there are rules: one of these is free.
    options = [list(islice(each, len(fitting))) for each in fitting]
    rule_of: dict[int, int] = {}

    def place(rule: int, tried: set[int]) -> bool:
        for call in options[rule]:
            if call not in tried:
                tried.add(call)
                if call not in rule_of or place(rule_of[call], tried):
                    rule_of[call] = rule
                    return True
        return False

    for rule in range(len(options)):
        place(rule, set())
    placed = set(rule_of.values())
    return [rule in placed for rule in range(len(options))]


def _fits_rule(call: ToolUse, rule: CallRule) -> bool:
    return call.tool == rule.tool and _has(call.arguments, rule.arguments)


def _has(value: object, wanted: object) -> bool:
    """Return whether a value has all that is wanted: of objects the named fields, of anything else the same."""
    if isinstance(wanted, Mapping) and isinstance(value, Mapping):
        return all(_has(value.get(key, _MISSING), inner) for key, inner in wanted.items())
    return _equal(value, wanted)


def _equal(one: object, other: object) -> bool:
    """Return whether two values are the same JSON: 1 and 1.0 are, 1 and true are not."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return one == other


def _text(outcome: Outcome) -> str:
    if outcome.text is None:
        raise _Wrong("the run failed, and has no answer" if outcome.status == "failed" else "the run has no answer")
    if len(outcome.text) > MAX_JUDGED_CHARS:
        raise _NotJudged(f"the answer has {len(outcome.text)} characters; at most {MAX_JUDGED_CHARS} are judged")
    return outcome.text


def _json_of(outcome: Outcome) -> Any:
    if outcome.output is not None:
        return outcome.output
    try:
        return json_in(_text(outcome))[0]
    except orjson.JSONDecodeError as error:
        raise _Wrong(f"the answer is no JSON: {error.msg}") from error


def _expected(outcome: Outcome) -> Any:
    if outcome.expected is None:
        raise _NotJudged("the example has no expected answer")
    return outcome.expected


def _expected_text(outcome: Outcome) -> str:
    expected = _expected(outcome)
    if not isinstance(expected, str) or not expected.strip():
        raise _NotJudged("the example's expected answer is no text")
    return expected


def _value_at(path: str, value: Any) -> Any:
    for step in parse_path(path):
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and step < len(value) else _MISSING
        else:
            value = value.get(step, _MISSING) if isinstance(value, Mapping) else _MISSING
        if value is _MISSING:
            raise _Wrong(f"the answer has no {path}")
    return value


def _as_number(value: object) -> float | None:
    """Return a number, also of a text that is nothing else; None if it is none."""
    if isinstance(value, str):
        text = value.strip()
        return _parsed(text) if _NUMBER.fullmatch(text) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _only_number(text: str) -> float:
    found = [_parsed(each) for each in islice(_NUMBER.findall(text), 2)]
    if not found:
        raise _Wrong("the answer has no number")
    if len(found) > 1:
        raise _NotJudged("the answer has several numbers: ask for JSON, and give a path")
    return found[0]


def _parsed(text: str) -> float:
    """Return a number as people write it: 1,250 has thousands, and a comma at its end ends a clause."""
    text = text.rstrip(",")
    if "," in text and not _GROUPED.match(text):
        raise _NotJudged(f"{text!r} may be one number or two")
    return float(text.replace(",", ""))


def _comparable(text: str, *, spaces: bool = False, case: bool = False) -> str:
    text = " ".join(text.split()) if spaces else text
    return text.casefold() if case else text


def _verdict(is_good: bool, passed: str, failed: str) -> Verdict:
    return Verdict("passed", 1.0, passed) if is_good else Verdict("failed", 0.0, failed)


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _QUOTED_CHARS else text[:_QUOTED_CHARS] + "…")


def _shown(value: object) -> str:
    return f"{value!r:.{_QUOTED_CHARS}}"


@lru_cache(maxsize=_COMPILED)
def _compiled_pattern(pattern: str) -> LinearPattern:
    return LinearPattern(pattern)


@lru_cache(maxsize=_COMPILED)
def _compiled_schema(schema: bytes) -> JsonSchema:
    return JsonSchema(orjson.loads(schema))


_JUDGES: Final[Mapping[type[Body], Callable[[Any, Outcome], Verdict]]] = {
    Answered: _answered,
    Exact: _exact,
    Contains: _contains,
    Pattern: _pattern,
    PathEquals: _path_equals,
    Number: _number,
    Judge: _judge,
    Latency: _latency,
    Cost: _cost,
    Steps: _steps,
    Trajectory: _trajectory,
}
"""All but that of a JSON schema, which may wait for a child process."""
