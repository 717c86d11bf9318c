"""The seam between the chain and what an effect does."""

from collections.abc import Sequence
from typing import Protocol

from nova_workers.ledger.runs.effects import DueEffect

__all__ = ["EffectHandler"]


class EffectHandler(Protocol):
    """Does effects of one kind. Above it: claims, backoff and attempts. Below it: a model and the ledger.

    Attributes:
        batch_size: Most effects of one call.
        at_once: Most calls of `handle` at the same time.
    """

    @property
    def batch_size(self) -> int:
        """Most effects of one call."""
        ...

    @property
    def at_once(self) -> int:
        """Most calls of `handle` at the same time."""
        ...

    async def prepare(self, effects: Sequence[DueEffect]) -> None:
        """Do what needs no turn, before one is waited for: the quick part of work whose rest is slow.

        As idempotent as `handle`, which comes after it, or does not: the effects may be given back in between.

        Args:
            effects: Those that `handle` will get.

        Raises:
            Exception: As of `handle`, which is not called then.
        """
        ...

    async def handle(self, effects: Sequence[DueEffect]) -> None:
        """Do these effects.

        Must be idempotent: an effect may be done again after it was done, when its worker died before the
        row said so.

        Args:
            effects: At most `batch_size`, of any runs and tenants. An effect that failed before comes alone,
                so that one bad message cannot hold up others.

        Raises:
            Exception: Not all of them are done; each is tried again later.
        """
        ...

    async def close(self) -> None:
        """Let go of processes and connections."""
        ...
