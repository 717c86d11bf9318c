"""Engines and tool servers whose libraries are loaded when a turn first needs them.

The SDKs of models and of MCP are 67 MB and half of the CPU of a worker's start, and an idle worker needs none. They are
imported by name, in a thread, so that other turns go on meanwhile: see docs/decisions/0038.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

from nova_workers.base.config import Settings
from nova_workers.base.deferred import Deferred
from nova_workers.base.errors import NovaError
from nova_workers.base.observability.tracing import unrecorded
from nova_workers.base.program import import_sparingly
from nova_workers.bootstrap.engine_parts import EngineParts
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
from nova_workers.contracts.tool_programs import ToolPrograms
from nova_workers.contracts.user_agents import AgentProgram
from nova_workers.domain.capabilities.rules.seam import Servable, UserAgentRun
from nova_workers.domain.capabilities.rules.transactions import CallTransactions
from nova_workers.engines.commands import ShellSettings
from nova_workers.engines.tool_schemas import ANTHROPIC, Unrepairable, repaired

Probe = Callable[[float], Awaitable[str | None]]
"""Returns why an engine of one provider cannot be used, None if it can; its argument is the longest wait in seconds."""


class DeferredEngine:
    """Implements `Engine` and `ProbedEngine` by an engine that the first turn loads."""

    def __init__(
        self,
        name: str,
        parts: EngineParts,
        *,
        module: str,
        sparingly: tuple[str, ...] = ("anthropic",),
        probe: Probe | None = None,
    ) -> None:
        """Load nothing.

        Args:
            name: The engine's name.
            parts: What it is built of.
            module: Has a function ``build(name, parts)`` that returns it, and imports its libraries. A function
                ``rehearse(directory)``, if there is one, plays a turn without a provider; it blocks.
            sparingly: Libraries of it that are imported without what they do not need (`import_sparingly`).
            probe: Tries its provider without them; None loads the engine and asks it.
        """
        self.name = name
        self._probe = probe
        self._module = module
        self.modules = (*sparingly, module)
        """What it imports when it is loaded, in this order."""

        def build() -> Engine:
            import_sparingly(*sparingly)
            # The only import of an engine's libraries.
            engine: Engine = import_module(module).build(name, parts)
            return engine

        self._deferred = Deferred(f"the engine {name!r}", build)

    @property
    def is_loaded(self) -> bool:
        """Whether the engine is loaded."""
        return self._deferred.made is not None

    def load(self) -> None:
        """Load the engine now. Blocks."""
        self._deferred.make()

    async def warm_up(self) -> None:
        """Load the engine in a thread, and let its module play a turn without a provider, if it can.

        Raises:
            ConfigurationError: See `Deferred.get`.
        """
        await self._deferred.get()
        rehearse = getattr(import_module(self._module), "rehearse", None)
        if rehearse is not None:
            await asyncio.to_thread(_unobserved, rehearse)

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

    def __init__(self, calls: CallTransactions, settings: Settings, shell: ShellSettings) -> None:
        """Load nothing.

        Args:
            calls: Opens the transactions of calls.
            settings: The fleet's settings.
            shell: How programs are confined, for tools of users.
        """
        self._programs: ToolPrograms | None = None

        def build() -> Any:
            self._programs = import_module("nova_workers.bootstrap.on_demand.tool_programs").build(settings, shell)
            return import_module("nova_workers.domain.capabilities.rules.serving").ToolServer(calls, self._programs)

        self._deferred = Deferred("the tools of capabilities", build)

    async def load(self) -> None:
        """Load it in a thread.

        Raises:
            ConfigurationError: See `Deferred.get`.
        """
        await self._deferred.get()

    @staticmethod
    def describe(schema: JsonObject) -> None:
        """Bring a tool's schema into the form that models get, which the first turn with it would do otherwise."""
        with suppress(Unrepairable):
            repaired(schema, ANTHROPIC)

    async def programs(self) -> ToolPrograms:
        """Return the caller of code of users. It is closed here."""
        await self._deferred.get()
        assert self._programs is not None  # noqa: S101 - made with the server
        return self._programs

    async def close(self) -> None:
        """End the processes of tools of users."""
        if self._programs is not None:
            await self._programs.close()

    async def __call__(self, declared: Servable) -> InProcessMcpServer:
        """Return a server whose tools work for the run in the declaration."""
        serve = self._deferred.made or await self._deferred.get()
        server: InProcessMcpServer = await serve(declared)
        return server

    async def program(self, agent: UserAgentRun) -> AgentProgram:
        """Return the function of an agent for one attempt at a turn."""
        serve = self._deferred.made or await self._deferred.get()
        program: AgentProgram = serve.program(agent)
        return program


def _unobserved(rehearse: Callable[[str], None]) -> None:
    with tempfile.TemporaryDirectory(prefix="nova-rehearsal-") as directory, unrecorded():
        rehearse(directory)
