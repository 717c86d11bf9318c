"""Engines and tool servers whose libraries are loaded when a turn first needs them.

The SDKs of models and of MCP are 67 MB and half of the CPU of a worker's start, and an idle worker needs none. They are
imported by name, in a thread, so that other turns go on meanwhile: see docs/decisions/0038.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar

import structlog

from nova_workers.bootstrap.engine_parts import EngineParts
from nova_workers.capabilities.seam import DeclaredServer
from nova_workers.capabilities.transactions import CallTransactions
from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.engine import (
    Engine,
    EngineOptions,
    EngineResult,
    InProcessMcpServer,
    ProbedEngine,
    TrustLevel,
    TurnListener,
)
from nova_workers.errors import ConfigurationError, NovaError
from nova_workers.program import importing_late

__all__ = ["DeferredEngine", "DeferredToolServer", "Probe"]

_log = structlog.get_logger(__name__)

T = TypeVar("T")

Probe = Callable[[float], Awaitable[str | None]]
"""Returns why an engine of one provider cannot be used, None if it can; its argument is the longest wait in seconds."""

_ONE_AT_A_TIME = threading.Lock()
"""For the whole process, like its modules: of two threads that import modules which import each other, one may see an
unfinished one. It also guards `EngineParts.shared`."""


class _Deferred(Generic[T]):
    """An object that is made once, in a thread. A failure is raised to all who wait, and the next use tries again."""

    def __init__(self, what: str, make: Callable[[], T]) -> None:
        self.made: T | None = None
        self._what = what
        self._make = make
        self._making: asyncio.Task[T] | None = None

    async def get(self) -> T:
        """Return the object.

        Raises:
            ConfigurationError: Its libraries cannot be imported, or its settings cannot be used.
        """
        if self.made is not None:
            return self.made
        making = self._making
        if making is None or making.done():
            making = asyncio.create_task(asyncio.to_thread(self.make), name=f"load {self._what}")
            self._making = making
        # A turn that is canceled does not stop the others from getting the object.
        return await asyncio.shield(making)

    def make(self) -> T:
        """Make the object in this thread, unless it is made. Blocks."""
        with _ONE_AT_A_TIME:
            if self.made is None:
                try:
                    with importing_late():
                        self.made = self._make()
                except ImportError as error:
                    _log.exception("engine.not_loaded", what=self._what)
                    raise ConfigurationError(
                        f"The libraries of {self._what} cannot be imported: {error}. Install the package "
                        "'nova-workers' with its extras on the workers again."
                    ) from error
            return self.made


class DeferredEngine:
    """Implements `Engine` and `ProbedEngine` by an engine that the first turn loads."""

    def __init__(self, name: str, parts: EngineParts, *, module: str, probe: Probe | None = None) -> None:
        """Load nothing.

        Args:
            name: The engine's name.
            parts: What it is built of.
            module: Has a function ``build(name, parts)`` that returns it, and imports its libraries.
            probe: Tries its provider without them; None loads the engine and asks it.
        """
        self.name = name
        self._probe = probe

        def build() -> Engine:
            # The only import of an engine's libraries.
            engine: Engine = import_module(module).build(name, parts)
            return engine

        self._deferred = _Deferred(f"the engine {name!r}", build)

    def load(self) -> None:
        """Load the engine now. Blocks."""
        self._deferred.make()

    async def run(  # noqa: PLR0917 - the contract's signature
        self,
        message: str | tuple[JsonObject, ...],
        options: EngineOptions,
        trust: TrustLevel,
        session_id: str | None = None,
        callbacks: TurnListener | None = None,
        abort: AbortSignal | None = None,
    ) -> EngineResult:
        """Execute one turn. See `nova_workers.contracts.engine.Engine.run`."""
        engine = self._deferred.made or await self._deferred.get()
        return await engine.run(message, options, trust, session_id, callbacks, abort)

    async def probe(self, *, timeout_s: float) -> Mapping[str, str | None]:
        """Try the providers. See `nova_workers.contracts.engine.ProbedEngine.probe`."""
        if self._deferred.made is None and self._probe is not None:
            return {"": await self._probe(timeout_s)}
        try:
            engine = await self._deferred.get()
        except NovaError as error:
            return {"": error.message}
        return await engine.probe(timeout_s=timeout_s) if isinstance(engine, ProbedEngine) else {"": None}

    async def close(self) -> None:
        """Release connections, if the engine was loaded."""
        if self._deferred.made is not None:
            await self._deferred.made.close()


class DeferredToolServer:
    """Makes MCP servers of declared tools with a `ToolServer` that the first turn loads."""

    def __init__(self, calls: CallTransactions) -> None:
        """Take what opens the transactions of calls."""

        def build() -> Any:
            return import_module("nova_workers.capabilities.serving").ToolServer(calls)

        self._deferred = _Deferred("the tools of capabilities", build)

    async def __call__(self, declared: DeclaredServer) -> InProcessMcpServer:
        """Return a server whose tools work for the run in the declaration."""
        serve = self._deferred.made or await self._deferred.get()
        server: InProcessMcpServer = await serve(declared)
        return server
