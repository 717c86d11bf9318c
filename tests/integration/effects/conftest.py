"""A runner with handlers that a test scripts."""

import random
from collections.abc import Callable, Sequence

import pytest
from prometheus_client import CollectorRegistry

from nova_workers.base.clock import SystemClock
from nova_workers.base.config import EffectSettings, RunSettings, TelemetrySettings
from nova_workers.base.observability.metrics import Metrics
from nova_workers.base.observability.tracing import Tracing
from nova_workers.base.vocabulary import EffectKind
from nova_workers.domain.effects.rules.handler import Effect, EffectHandler
from nova_workers.domain.effects.rules.runner import EffectRunner
from nova_workers.domain.effects.sql import DueEffect
from nova_workers.ledger.database import Database

MakeRunner = Callable[..., EffectRunner]


class Recorder:
    """A handler that records its effects, and fails as configured."""

    def __init__(self, *, batch_size: int = 10, at_once: int = 2) -> None:
        self.batch_size = batch_size
        self.at_once = at_once
        self.batches: list[list[DueEffect]] = []
        self.fails: Callable[[Sequence[DueEffect]], Exception | None] = lambda _: None
        self.closed = False

    @property
    def runs(self) -> list[str]:
        """The runs it got, in order."""
        return [effect.run_id for batch in self.batches for effect in batch]

    async def prepare(self, effects: Sequence[DueEffect]) -> None:
        pass

    async def handle(self, effects: Sequence[DueEffect]) -> None:
        self.batches.append(list(effects))
        error = self.fails(effects)
        if error is not None:
            raise error

    async def close(self) -> None:
        self.closed = True


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(CollectorRegistry())


@pytest.fixture
def make_runner(database: Database, metrics: Metrics) -> MakeRunner:
    """Return a function that makes a runner on the test's database."""

    def make(
        handlers: dict[EffectKind, EffectHandler],
        *,
        tracing: Tracing | None = None,
        settings: EffectSettings | None = None,
        leases: RunSettings | None = None,
        database: Database = database,
        prepares_all: bool = False,
    ) -> EffectRunner:
        return EffectRunner(
            database,
            settings or EffectSettings(),
            leases=leases or RunSettings(),
            effects=[
                Effect(kind, "searchable", handler, prepares_all=prepares_all) for kind, handler in handlers.items()
            ],
            clock=SystemClock(),
            metrics=metrics,
            tracing=tracing or Tracing(TelemetrySettings(), "worker"),
            rng=random.Random(1),
        )

    return make
