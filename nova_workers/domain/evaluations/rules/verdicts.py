"""Judges outcomes by evaluators of all kinds: rules, and those that need more than the outcome, such as a model."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from operator import mul
from typing import Final

from nova_workers.base.errors import InvalidInput, NovaError, Unavailable
from nova_workers.contracts.evaluators import Evaluator, Similarity
from nova_workers.contracts.ports import Embedder
from nova_workers.domain.evaluations.rules.evaluators import Outcome, Verdict, compared_texts, evaluate

_EMBED_S: Final = 30.0
"""The most time for the vectors of a few answers. A busy machine computes none for up to 10 s."""

_Pair = tuple[str, str]


class JudgeAway(Exception):
    """What judges does not answer now. Its text is the reason."""


def takes_time(evaluators: Iterable[Evaluator]) -> bool:
    """Return whether one of them waits for something, so that no transaction may be open meanwhile."""
    return any(isinstance(evaluator, Similarity) for evaluator in evaluators)


class Judges:
    """Judges outcomes, a few at once."""

    def __init__(self, embedder: Embedder | None) -> None:
        """Take what evaluators need.

        Args:
            embedder: The fleet's embedding model; None if it has none.
        """
        self._embedder = embedder

    async def judge(
        self, evaluators: Sequence[Evaluator], outcomes: Sequence[Outcome], *, gives_up: bool = True
    ) -> list[list[Verdict]]:
        """Return the verdicts on each outcome, in the order of the evaluators. It never raises for an answer.

        Args:
            evaluators: At least one.
            outcomes: At most a few, if an evaluator takes time.
            gives_up: Whether what does not answer leaves outcomes not judged.

        Raises:
            JudgeAway: Something that judges does not answer now, and `gives_up` is false.
        """
        by_evaluator = [await self._by(evaluator, outcomes, gives_up) for evaluator in evaluators]
        return [list(of_outcome) for of_outcome in zip(*by_evaluator, strict=True)]

    async def _by(self, evaluator: Evaluator, outcomes: Sequence[Outcome], gives_up: bool) -> Sequence[Verdict]:
        if not isinstance(evaluator, Similarity):
            return [await evaluate(evaluator, outcome) for outcome in outcomes]
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
            vectors = await self._embedder.embed([text for pair in pairs for text in pair])
        return [cosine(*each) for each in zip(vectors[::2], vectors[1::2], strict=True)]


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
