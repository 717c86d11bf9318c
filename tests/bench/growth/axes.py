"""What grows, by name, with its sizes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.bench.growth.agents import measure_agents
from tests.bench.growth.costs import Axis, Cost
from tests.bench.growth.effects import measure_effects
from tests.bench.growth.finished_runs import measure_finished_runs
from tests.bench.growth.ground import Ground
from tests.bench.growth.long_threads import measure_long_threads
from tests.bench.growth.queues import measure_queues
from tests.bench.growth.streams import measure_streams
from tests.bench.growth.tenants import measure_tenants
from tests.bench.growth.texts import measure_texts
from tests.bench.growth.vectors import measure_vectors


@dataclass(frozen=True, slots=True)
class Growing:
    """An axis that can be measured.

    Attributes:
        small: Sizes that only prove that the measurement runs.
    """

    what: str
    measure: Callable[[Ground, Sequence[int]], AsyncGenerator[Cost]]
    sizes: tuple[int, ...]
    small: tuple[int, ...]


AXES: Final[Mapping[str, Growing]] = {
    "runs": Growing(
        "finished runs of one tenant",
        measure_finished_runs,
        (1_000, 10_000, 100_000, 1_000_000, 10_000_000),
        (100, 300),
    ),
    "turns": Growing("turns of one thread", measure_long_threads, (10, 100, 1_000, 10_000), (30, 60)),
    "queued": Growing("queued runs of one tenant", measure_queues, (10, 100, 1_000, 10_000, 100_000), (10, 400)),
    "effects": Growing("runs whose effects wait", measure_effects, (1_000, 10_000, 100_000), (300, 600)),
    "streams": Growing("open event streams on one API process", measure_streams, (10, 100, 1_000, 10_000), (2, 6)),
    "agents": Growing("agents of one tenant", measure_agents, (10, 100, 1_000), (2, 10)),
    "tenants": Growing("tenants", measure_tenants, (10, 100, 1_000, 10_000), (2, 10)),
    "texts": Growing("texts of one agent", measure_texts, (1_000, 10_000, 100_000, 1_000_000), (100, 200)),
    "vectors": Growing("vectors of one agent", measure_vectors, (1_000, 10_000, 100_000, 1_000_000), (100, 200)),
}
"""By name, in the page's order."""


async def measure_axis(ground: Ground, name: str, sizes: Sequence[int]) -> Axis:
    """Measure one axis at the given sizes, which grow."""
    growing = AXES[name]
    return Axis(name, growing.what, [cost async for cost in growing.measure(ground, sizes)])
