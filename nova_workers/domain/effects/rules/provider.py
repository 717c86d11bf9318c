"""The seam to providers of text embeddings."""

from collections.abc import Sequence
from typing import Protocol

Vector = Sequence[float]
"""A unit vector of 32-bit floats."""


class EmbeddingProvider(Protocol):
    """Turns texts into vectors whose cosine measures similarity of meaning.

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
            ConfigurationError: Key, URL or model are wrong, or a package is missing.
        """
        ...

    async def close(self) -> None:
        """Release processes and connections."""
        ...
