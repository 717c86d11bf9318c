"""Simulated rollouts: how often guardrails stop a candidate that equals the current version, and one that is worse.

``python -m tests.support.data.rollouts`` prints the figures of docs/decisions/0061-guardrails-look-at-planned-times.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from nova_workers.domain.rollouts.rules.guardrails import LOOKS, Guardrail, Look, Measure, judge_look

ALL: Final = (
    Guardrail("failure"),
    Guardrail("cost"),
    Guardrail("latency"),
    Guardrail("feedback"),
    Guardrail("judge"),
)
WORSE: Final = 0.2
BASELINES: Final = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
SHARES: Final = (0.5, 0.25, 0.1)
SEED: Final = 20_261_129


@dataclass(frozen=True, slots=True)
class Observation:
    """An ended run of either version, in the order in which runs ended.

    Attributes:
        is_candidate: Whether the candidate executed it.
        values: What is known of it, by measure; a failure is 1, else 0. A measure that is missing does not count.
    """

    is_candidate: bool
    values: Mapping[Measure, float]


def find_breach(observations: Iterable[Observation], guardrails: Sequence[Guardrail]) -> Look | None:
    """Return the first breach along a rollout's runs, judged as the sweep does; None if the candidate may continue."""
    candidate, baseline = defaultdict[Measure, list[float]](list), defaultdict[Measure, list[float]](list)
    for observation in observations:
        values = candidate if observation.is_candidate else baseline
        for measure, value in observation.values.items():
            values[measure].append(value)
        for guardrail in guardrails if observation.is_candidate else ():
            measure = guardrail.measure
            if measure in observation.values and len(candidate[measure]) in LOOKS:
                look = judge_look(guardrail, guardrails, candidate[measure], baseline[measure])
                if look is not None and look.is_breach:
                    return look
    return None


def failures(random: Random, *, share: float, candidate: float, baseline: float, runs: int) -> Iterator[Observation]:
    """Yield a rollout of which only failures are known, until the candidate has had its runs."""
    while runs:
        is_candidate = random.random() < share
        runs -= is_candidate
        probability = candidate if is_candidate else baseline
        yield Observation(is_candidate, {"failure": float(random.random() < probability)})


def equal_versions(random: Random, *, share: float, failing: float, runs: int) -> Iterator[Observation]:
    """Yield a rollout of two equal versions, of which everything is known that guardrails watch.

    One run in five has a thumb, one in ten a judge's score of five steps. Cost and latency are log-normal, of runs that
    fail a third.
    """
    while runs:
        is_candidate = random.random() < share
        runs -= is_candidate
        yield Observation(is_candidate, _values(random, failing))


def _values(random: Random, failing: float) -> Mapping[Measure, float]:
    has_failed = random.random() < failing
    part = 1 / 3 if has_failed else 1.0
    values: dict[Measure, float] = {
        "failure": float(has_failed),
        "cost": part * random.lognormvariate(-4, 1.2),
        "latency": part * random.lognormvariate(2, 0.8),
    }
    if random.random() < 0.2:
        values["feedback"] = -1.0 if random.random() < 0.3 else 1.0
    if random.random() < 0.1:
        values["judge"] = random.choice((0.2, 0.4, 0.6, 0.8, 1.0))
    return values


def stopped(
    rollouts: int,
    *,
    share: float,
    baseline: float,
    worse: float,
    runs: int = 200,
    guardrails: Sequence[Guardrail] = ALL,
) -> float:
    """Return the part of rollouts in which a candidate that fails more is stopped within its first runs."""
    random = Random(SEED)
    stops = [
        find_breach(failures(random, share=share, candidate=baseline + worse, baseline=baseline, runs=runs), guardrails)
        for _ in range(rollouts)
    ]
    return sum(stop is not None for stop in stops) / rollouts


def false_stops(rollouts: int, *, share: float, failing: float, runs: int) -> float:
    """Return the part of rollouts of equal versions that any guardrail stops."""
    random = Random(SEED)
    stops = [find_breach(equal_versions(random, share=share, failing=failing, runs=runs), ALL) for _ in range(rollouts)]
    return sum(stop is not None for stop in stops) / rollouts


def _print() -> None:
    print("Stopped within 200 runs, of a candidate that fails 20 points more; 1,000 rollouts each:")
    print("baseline " + " ".join(f"share {share:>4.0%}" for share in SHARES))
    for baseline in BASELINES:
        parts = [stopped(1_000, share=share, baseline=baseline, worse=WORSE) for share in SHARES]
        print(f"{baseline:>8.0%} " + " ".join(f"{part:>10.1%}" for part in parts), flush=True)
    print("\nFalse stops of all five guardrails, equal versions, 3,200 runs of the candidate; 1,000 rollouts each:")
    for failing in (0.05, 0.5):
        print(f"{failing:>8.0%} {false_stops(1_000, share=0.5, failing=failing, runs=3_200):>10.1%}", flush=True)


if __name__ == "__main__":
    _print()
