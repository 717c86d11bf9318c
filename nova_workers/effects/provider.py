"""The seam to whatever turns text into vectors."""

from collections.abc import Sequence
from typing import Protocol

__all__ = ["EmbeddingProvider", "Vector"]

Vector = Sequence[float]
"""Numbers of 32-bit precision, of length 1 as a vector."""


class EmbeddingProvider(Protocol):
    """Turns texts into vectors whose cosine says how near their meanings are.

    Above the seam: effects and search. Below it: a child process with a local model, or a server.
    """

    @property
    def model(self) -> str:
        """Stored with every vector: vectors of two models do not compare."""
        ...

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """Return one vector a text, in order, all of one width.

        Raises:
            Unavailable: The provider does not answer now; try again.
            InvalidInput: It refuses one of the texts.
            ConfigurationError: It refuses us: key, URL or model are wrong, or a package is missing.
        """
        ...

    async def close(self) -> None:
        """Let go of processes and connections."""
        ...
