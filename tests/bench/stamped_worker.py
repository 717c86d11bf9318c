"""The ordinary worker, but a scripted token ``@now`` becomes the time at which the engine emitted it.

    celery -A tests.bench.stamped_worker:app worker -P threads

The time is the machine's monotonic clock in nanoseconds, which its processes share.
"""

import time

from nova_workers.bootstrap.on_demand import scripted
from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.engine import EngineOptions, EngineResult, ForwardingListener, TrustLevel, TurnListener
from nova_workers.engines.scripted import ScriptedEngine
from tests.bench.stamped_worker_names import STAMP

__all__ = ["app"]


class Stamping(ForwardingListener):
    """Passes on the time in place of the stamp."""

    def on_token(self, text: str) -> None:
        """Pass on a token."""
        self._to.on_token(f" {time.monotonic_ns()}" if text.strip() == STAMP else text)


class StampingEngine(ScriptedEngine):
    """The scripted engine, with a clock."""

    async def run(
        self,
        message: str | tuple[JsonObject, ...],
        options: EngineOptions,
        trust: TrustLevel,
        session_id: str | None = None,
        callbacks: TurnListener | None = None,
        abort: AbortSignal | None = None,
    ) -> EngineResult:
        """Play one turn."""
        return await super().run(message, options, trust, session_id, Stamping(callbacks or TurnListener()), abort)


# The module that builds the engine has another one under the same name in this process.
scripted.ScriptedEngine = StampingEngine
from nova_workers.worker.app import app  # noqa: E402
