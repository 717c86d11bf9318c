"""Protocols that let lower rooms reach upwards without importing: the runner's hands for tools.

Above the seam: `runs`, `worker` and `api` implement these. Below it: capabilities, effects and engines
use them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from nova_workers.contracts.runs import Doorbell

__all__ = ["Dispatcher", "FetchedPage", "WebFetcher"]


class Dispatcher(Protocol):
    """Rings doorbells. Best effort: what is lost, the reconciler rings again."""

    def ring_runs(self, bells: Sequence[Doorbell]) -> None:
        """Ring for runs that stand in line. Returns at once; never raises."""
        ...

    def ring_effects(self) -> None:
        """Ring for effects that are due. Returns at once; never raises. Rings close together are one."""
        ...


@dataclass(frozen=True, slots=True)
class FetchedPage:
    """A page of the web as text.

    Attributes:
        url: Where it was in the end, after redirects.
        status: The HTTP status; an error page is a page too.
        content_type: As the server says, without parameters; empty if it says nothing.
        truncated: Whether there was more than the bounds let through.
    """

    url: str
    status: int
    content_type: str
    text: str
    truncated: bool = False


class WebFetcher(Protocol):
    """Gets pages from the public internet, and from nowhere else."""

    async def fetch(self, url: str) -> FetchedPage:
        """Return the page.

        Raises:
            ToolFailure: The address is not one of the public internet, the server does not answer in time, or what it
                sends is no text.
        """
        ...
