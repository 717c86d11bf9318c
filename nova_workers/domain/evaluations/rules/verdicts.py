"""Judges outcomes by evaluators of all kinds: rules, and those that need more than the outcome, such as a model."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import mul
from typing import Final, Literal, Protocol

from nova_workers.base.errors import InvalidInput, NovaError, ToolFailure, Unavailable
from nova_workers.contracts.evaluators import Evaluator, Function, Similarity
from nova_workers.contracts.judged_answers import MAX_REASON_CHARS, JudgedAnswer, JudgedCall, Judgement
from nova_workers.contracts.ports import Embedder
from nova_workers.domain.evaluations.rules.evaluators import Outcome, Verdict, compared_texts, evaluate

_EMBED_S: Final = 30.0
"""The most time for the vectors of a few answers. A busy machine computes none for up to 10 s."""

_Pair = tuple[str, str]


class JudgeAway(Exception):
    """What judges does not answer now. Its text is the reason."""


class EvaluatorFunctions(Protocol):
    """Functions in Python that judge. Below it: processes of the code of users."""

    def has(self, tenant_id: str, function: str) -> bool:
        """Return whether a tenant's function is installed in this process."""
        ...

    async def call(self, tenant_id: str, agent_id: str, function: str, answer: JudgedAnswer) -> Judgement:
        """Return the judgement of a function on an answer.

        Raises:
            ToolFailure: It says nothing; the message is the reason.
        """
        ...


@dataclass(frozen=True, slots=True)
class Owner:
    """The agent whose answers are judged."""

    tenant_id: str
    agent_id: str


def takes_time(evaluators: Iterable[Evaluator]) -> bool:
    """Return whether one of them waits for something, so that no transaction may be open meanwhile."""
    return any(isinstance(evaluator, Similarity | Function) for evaluator in evaluators)


class Judges:
    """Judges outcomes, a few at once."""

    def __init__(self, embedder: Embedder | None, functions: EvaluatorFunctions | None = None) -> None:
        """Take what evaluators need.

        Args:
            embedder: The fleet's embedding model; None if it has none.
            functions: Evaluators in Python; None if there are none.
        """
        self._embedder = embedder
        self._functions = functions

    def lacks(self, tenant_id: str, evaluators: Iterable[Evaluator]) -> list[str]:
        """Return the functions in Python that are not installed here."""
        names = [evaluator.function for evaluator in evaluators if isinstance(evaluator, Function)]
        return [name for name in names if self._functions is None or not self._functions.has(tenant_id, name)]

    async def judge(
        self, whose: Owner, evaluators: Sequence[Evaluator], outcomes: Sequence[Outcome], *, gives_up: bool = True
    ) -> list[list[Verdict]]:
        """Return the verdicts on each outcome, in the order of the evaluators. It never raises for an answer.

        Args:
            whose: Tenant and agent.
            evaluators: At least one.
            outcomes: At most a few, if an evaluator takes time.
            gives_up: Whether what does not answer leaves outcomes not judged.

        Raises:
            JudgeAway: Something that judges does not answer now, and `gives_up` is false.
        """
        by_evaluator = await asyncio.gather(
            *(self._by(whose, evaluator, outcomes, gives_up) for evaluator in evaluators)
        )
        return [list(of_outcome) for of_outcome in zip(*by_evaluator, strict=True)]

    async def _by(
        self, whose: Owner, evaluator: Evaluator, outcomes: Sequence[Outcome], gives_up: bool
    ) -> Sequence[Verdict]:
        match evaluator:
            case Similarity():
                return await self._compare(evaluator, outcomes, gives_up)
            case Function():
                return await asyncio.gather(*(self._call(whose, evaluator, outcome) for outcome in outcomes))
            case _:
                return [await evaluate(evaluator, outcome) for outcome in outcomes]

    async def _call(self, whose: Owner, evaluator: Function, outcome: Outcome) -> Verdict:
        if outcome.status == "canceled":
            return Verdict("not_judged", None, "the run was canceled")
        if self._functions is None or not self._functions.has(whose.tenant_id, evaluator.function):
            return Verdict("not_judged", None, f"no worker that judges has the evaluator {evaluator.function!r}")
        try:
            said = await self._functions.call(
                whose.tenant_id, whose.agent_id, evaluator.function, _answer_of(outcome, outcome.status)
            )
        except ToolFailure as error:
            return Verdict("not_judged", None, error.message[:MAX_REASON_CHARS])
        passed = said.score >= evaluator.at_least if said.passed is None else said.passed
        reason = said.reason[:MAX_REASON_CHARS] or f"{evaluator.function} gives {said.score:g}"
        return Verdict("passed" if passed else "failed", said.score, reason)

    async def _compare(self, evaluator: Similarity, outcomes: Sequence[Outcome], gives_up: bool) -> Sequence[Verdict]:
        texts = [compared_texts(evaluator, outcome) for outcome in outcomes]
        pairs = [each for each in texts if not isinstance(each, Verdict)]
        found = dict(zip(pairs, await self._similarities(pairs, gives_up), strict=True))
        return [each if isinstance(each, Verdict) else _similar(found[each], evaluator.at_least) for each in texts]

    async def _similarities(self, pairs: Sequence[_Pair], gives_up: bool) -> Sequence[float | str]:
        """Return the cosine of each pair, or why there is none."""
        try:
            return await self._cosines(pairs)
        except InvalidInput as error:
            if len(pairs) > 1:
                # One of them is refused; the others can be judged.
                return [only for pair in pairs for only in await self._similarities([pair], gives_up)]
            why = f"the embedding model refuses a text: {error.message}"
        except (Unavailable, TimeoutError) as error:
            why = f"the embedding model does not answer: {str(error) or f'not within {_EMBED_S:g} s'}"
            if not gives_up:
                raise JudgeAway(why) from error
        except NovaError as error:
            why = f"the embedding model cannot be asked: {error.message}"
        return [why] * len(pairs)

    async def _cosines(self, pairs: Sequence[_Pair]) -> Sequence[float | str]:
        if not pairs:
            return ()
        if self._embedder is None:
            return ["this fleet has no embedding model"] * len(pairs)
        async with asyncio.timeout(_EMBED_S):
            # Many answers have the same expected one.
            texts = list(dict.fromkeys(text for pair in pairs for text in pair))
            vectors = dict(zip(texts, await self._embedder.embed(texts), strict=True))
        return [cosine(vectors[answer], vectors[expected]) for answer, expected in pairs]


def _answer_of(outcome: Outcome, status: Literal["succeeded", "failed"]) -> JudgedAnswer:
    return JudgedAnswer(
        input="\n".join(block["text"] for block in outcome.input if block.get("type") == "text"),
        answer=outcome.text or "",
        output=outcome.output,
        expected=outcome.expected,
        calls=tuple(JudgedCall(tool=call.tool, arguments=call.arguments) for call in outcome.calls),
        status=status,
        error=outcome.error,
        steps=outcome.steps,
        cost_usd=outcome.cost_usd,
        latency_s=outcome.latency_s,
    )


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the cosine of two vectors, at least 0; 0 if one of them is 0."""
    lengths = math.hypot(*one) * math.hypot(*other)
    return min(max(sum(map(mul, one, other)) / lengths, 0.0), 1.0) if lengths else 0.0


def _similar(found: float | str, at_least: float) -> Verdict:
    if isinstance(found, str):
        return Verdict("not_judged", None, found)
    # What 32-bit numbers lose: equal texts have a cosine of 1.
    is_similar = found >= at_least - 1e-6
    reason = f"the similarity is {found:.3f}, at least {at_least:g} is wanted"
    return Verdict("passed" if is_similar else "failed", found, reason)
