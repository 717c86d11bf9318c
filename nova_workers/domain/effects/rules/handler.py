"""What an effect is: its kind, the runs it applies to, and the handler that does it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from nova_workers.base.vocabulary import EffectCondition
from nova_workers.contracts.runs import PlannedEffect
from nova_workers.domain.effects.sql import DueEffect


class EffectHandler(Protocol):
    """Handles effects of one kind. Above it: claims, backoff and attempts. Below it: a model and the ledger.

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
        """Do the quick part of the work, before waiting for one of the `at_once` permits of `handle`.

        Must be idempotent, as `handle`, which follows unless the effects are released in between.

        Args:
            effects: Those that `handle` will get.

        Raises:
            Exception: As for `handle`, which is then not called.
        """
        ...

    async def handle(self, effects: Sequence[DueEffect]) -> None:
        """Handle these effects.

        Must be idempotent: an effect is handled again if its worker crashed before it recorded the result.

        Args:
            effects: At most `batch_size`, of any runs and tenants. An effect that failed before is passed alone, so
                that one bad message does not block others.

        Raises:
            Exception: At least one failed; each is retried later.
        """
        ...

    async def close(self) -> None:
        """Release processes and connections."""
        ...


@dataclass(frozen=True, slots=True)
class Effect:
    """The declaration of an effect.

    Attributes:
        kind: As stored in the ledger.
        applies: Which ended runs get one.
        handler: Handles the due ones.
        prepares_all: Whether due effects are prepared although there is no room to claim them: their quick part does
            not wait for the slow one of others.
        tenants: Those whose runs it follows; None is all.
        agents: Those whose runs it follows, by id; None is all.
        is_last: Whether it comes after the effects that are not, and beside the others that are.
    """

    kind: str
    applies: EffectCondition
    handler: EffectHandler
    prepares_all: bool = False
    tenants: frozenset[str] | None = None
    agents: frozenset[str] | None = None
    is_last: bool = False

    @property
    def planned(self) -> PlannedEffect:
        """The part that the end of a run needs."""
        return PlannedEffect(self.kind, self.applies, tenants=self.tenants, agents=self.agents, is_last=self.is_last)
