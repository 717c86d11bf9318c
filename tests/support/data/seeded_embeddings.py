"""An embedding provider without a model: each text seeds its own vector."""

import math
import random
from collections.abc import Sequence

from nova_workers.base.errors import Unavailable
from nova_workers.domain.effects.rules.provider import Vector


class SeededEmbeddings:
    """Gives each text its own vector, and records its calls.

    Attributes:
        calls: The texts of each call.
        fails: Whether it is unavailable.
    """

    def __init__(self, dimensions: int = 384, model: str = "directions") -> None:
        self.model = model
        self.dimensions = dimensions
        self.calls: list[list[str]] = []
        self.fails = False

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """Return a vector a text."""
        self.calls.append(list(texts))
        if self.fails:
            raise Unavailable("away")
        return [seeded_vector(text, self.dimensions) for text in texts]

    async def close(self) -> None:
        """Nothing is open."""


def seeded_vector(seed: str, dimensions: int = 384) -> list[float]:
    """Return a vector of length 1 that belongs to the seed."""
    rng = random.Random(seed)
    raw = [rng.gauss(0, 1) for _ in range(dimensions)]
    length = math.sqrt(sum(number * number for number in raw))
    return [number / length for number in raw]
