"""What the engines of a worker are built of, and share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from redis.asyncio import Redis

from nova_workers.base.clock import Clock
from nova_workers.base.config import Settings
from nova_workers.base.observability.metrics import Metrics
from nova_workers.engines.commands import ShellSettings

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EngineParts:
    """The parts that exist before any engine, and those that the first engine makes for all.

    Attributes:
        settings: The fleet's settings.
        redis: For the state of keys and models that all workers share.
        clock: The time.
        metrics: Of the process.
        shell: How commands are run.
    """

    settings: Settings
    redis: Redis
    clock: Clock
    metrics: Metrics
    shell: ShellSettings
    _shared: dict[tuple[type[object], str], object] = field(default_factory=dict[tuple[type[object], str], object])

    def shared(self, kind: type[T], make: Callable[[], T], *, name: str = "") -> T:
        """Return the process's only object of a kind and a name, made by the first engine that needs it.

        Called by one thread at a time: engines are loaded one after the other.
        """
        found = self._shared.get((kind, name))
        if isinstance(found, kind):
            return found
        made = make()
        self._shared[kind, name] = made
        return made
