"""Protocols that let lower rooms reach upwards without importing: the runner's hands for tools.

Above the seam: `runs`, `worker` and `api` implement these. Below it: capabilities, effects and engines
use them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from nova_workers.contracts.deliveries import DeliveryItem
from nova_workers.contracts.runs import CancelRequest, Doorbell

__all__ = [
    "CancelNotifier",
    "DeliveryChannel",
    "Dispatcher",
    "Embedder",
    "FetchedPage",
    "ModelWindows",
    "WebFetcher",
]


class Dispatcher(Protocol):
    """Rings doorbells. Best effort: what is lost, the reconciler rings again."""

    def ring_runs(self, bells: Sequence[Doorbell]) -> None:
        """Ring for runs that stand in line. Returns at once; never raises."""
        ...

    def ring_effects(self) -> None:
        """Ring for effects that are due. Returns at once; never raises. Rings close together are one."""
        ...

    def ring_deliveries(self) -> None:
        """Ring for what waits in the outbox. Returns at once; never raises. Rings close together are one."""
        ...


class CancelNotifier(Protocol):
    """Speeds up cancel requests that a transaction has committed. Without it, leases and the reconciler find them."""

    async def requested(self, requests: Sequence[CancelRequest]) -> None:
        """Nudge the workers that hold the runs, and announce those that ended at once."""
        ...


class DeliveryChannel(Protocol):
    """A way to people or programs outside: webhooks, a messenger, mail.

    Above the seam: the sender, which has the rows, the tries, the backoff and the bounds, and calls `deliver` once for
    each try, for several items at the same time. Below it: whatever carries an item there. A channel is made once, when
    the process starts.

    Attributes:
        name: Under which agents are given it; unique in a process.
    """

    @property
    def name(self) -> str:
        """Under which agents are given it."""
        ...

    async def deliver(self, item: DeliveryItem) -> int | None:
        """Hand over one item. It may come again after it was delivered, with the same id, when a process died between.

        Returns:
            The HTTP status that the receiver answered; None where there is no such thing.

        Raises:
            DeliveryFailed: It was not handed over; the error says whether another try can help.
        """
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


class ModelWindows(Protocol):
    """Knows how much models take."""

    def context_tokens(self, model: str) -> int:
        """Return the context window of a model, an alias or an id, in tokens. One that is not known has a default."""
        ...


class Embedder(Protocol):
    """Turns texts into vectors whose cosine says how near their meanings are: as those that are stored were made."""

    @property
    def model(self) -> str:
        """Which stored vectors these compare with."""
        ...

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return one vector a text, in order.

        Raises:
            NovaError: There are none now. Whoever searches goes on without.
        """
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
