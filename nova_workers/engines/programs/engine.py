"""The engine over a vendor's program, which `codex` and `gemini` share.

Each turn starts the program as a child process in a private home, and again where a program cannot continue (see
`nova_workers.engines.programs.provider`). The program has no tool of its own: the native tools, MCP servers and
subagents are those of every engine, behind one bridge (`nova_workers.engines.programs.bridge`), so each call is
journalled and authorized. What would need a tool of the program (its shell, its edits, its web search) is switched off,
since nothing could stop it between the model and its effect.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from nova_workers.base.errors import EngineFailure
from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.engine import EngineError, EngineOptions, EngineResult, TrustLevel, TurnListener
from nova_workers.engines.mcp.pool import ConnectionPool
from nova_workers.engines.native import NativeTools
from nova_workers.engines.prices import unpriced
from nova_workers.engines.programs.home import sweep
from nova_workers.engines.programs.models import ProgramModels
from nova_workers.engines.programs.process import frozen_by
from nova_workers.engines.programs.provider import ProgramProvider, Shared
from nova_workers.engines.programs.slot import Slot
from nova_workers.engines.programs.vendor import ProgramSettings, Vendor, why_not_usable
from nova_workers.engines.resilience import Resilience, ResilientResponder
from nova_workers.engines.tool_turns import OfferedTools, SharedParts, ToolTurns, note_of

_DEFAULT_MODEL = "sonnet"


class ProgramEngine:
    """Executes turns through a vendor's program."""

    def __init__(
        self,
        vendor: Vendor,
        settings: ProgramSettings,
        models: ProgramModels,
        *,
        request_timeout_s: float = 600.0,
        max_retries: int = 2,
        resilience: Resilience | None = None,
        native: NativeTools | None = None,
        connections: ConnectionPool | None = None,
    ) -> None:
        """Set up what turns share. Each turn looks for the program, so a missing one does not fail the worker.

        Args:
            vendor: Command line and output of the program.
            settings: The process's settings.
            models: Names, prices and windows of the models.
            request_timeout_s: Longest time without a report of the program.
            max_retries: Retries per response; used only without `resilience`.
            resilience: The process's shared breakers and limits; None shares nothing.
            native: The native tools, offered by trust; None offers only the file tools.
            connections: The process's MCP connections, which the engine closes; None creates its own pool.
        """
        sweep()
        self.name = vendor.name
        self._shared = Shared(vendor, settings, models, request_timeout_s, asyncio.Semaphore(settings.max_processes))
        parts = SharedParts.given(native, connections, resilience, max_retries=max_retries)
        self._turns = ToolTurns(self.name, parts, limits=lambda _: vendor.limits)

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
        refusal = self._refusal(options)
        if refusal is not None:
            return EngineResult(text="", stop_reason="error", provider=self.name, error=refusal)
        listener = callbacks or TurnListener()
        if options.temperature is not None:
            listener.on_option_left_out("temperature", note_of("temperature", f"The engine {self.name!r}"))
        programs = _Programs(self._shared, self._turns.shared.resilience)
        try:
            with frozen_by(abort, programs.freeze):
                async with self._turns.open(
                    options, trust, listener=listener, abort=abort, make_responder=programs.responder
                ) as (turn, offered):
                    result = await turn.play(message, provider=self.name)
                    return replace(result, tools_available=offered())
        finally:
            await programs.close()

    async def probe(self, *, timeout_s: float) -> Mapping[str, str | None]:
        """Look for the program and a key. See `nova_workers.contracts.engine.ProbedEngine.probe`."""
        return {"": await why_not_usable(self._shared.vendor, self._shared.settings)}

    async def close(self) -> None:
        """Close threads and connections. Programs end with their turns."""
        await self._turns.shared.close()

    def _refusal(self, options: EngineOptions) -> EngineError | None:
        """Return why the turn cannot be run as asked, before anything is spent."""
        models = self._shared.models
        try:
            model = models.id(options.model or _DEFAULT_MODEL)
            for agent in options.agents.values():
                if agent.model is not None:
                    models.id(agent.model)
        except EngineFailure as failure:
            return EngineError.of(failure)
        if options.cost_budget_usd is not None and not models.prices.knows(model):
            return unpriced(model, f"NOVA_{self.name.upper()}__PRICES")
        return None


class _Programs:
    """The programs of one turn and its subagents."""

    def __init__(self, shared: Shared, resilience: Resilience) -> None:
        self._shared = shared
        self._resilience = resilience
        self._slot = Slot(shared.slots)
        self._providers: list[ProgramProvider] = []

    def responder(self, options: EngineOptions, tools: OfferedTools, _: tuple[JsonObject, ...]) -> ResilientResponder:
        provider = ProgramProvider(self._shared, options, tools, self._slot)
        self._providers.append(provider)
        models = self._shared.models
        # Fallbacks of the fleet that are another vendor's are none of this program's.
        names = (options.model or _DEFAULT_MODEL, *self._shared.settings.fallbacks)
        return ResilientResponder(provider, [models.id(name) for name in names], self._resilience, options)

    def freeze(self) -> None:
        for provider in self._providers:
            provider.freeze()

    async def close(self) -> None:
        try:
            for provider in self._providers:
                await provider.close()
        finally:
            self._slot.release()
