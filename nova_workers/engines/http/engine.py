"""The base of the engines that ask a model over HTTP.

The loop is the turn that all engines share, and not an agent loop of a vendor's SDK: see
`nova_workers.engines.anthropic.engine`.
"""

from abc import ABC, abstractmethod
from collections.abc import Container, Iterable
from dataclasses import replace

from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.engine import EngineError, EngineOptions, EngineResult, TrustLevel, TurnListener
from nova_workers.engines.http.connections import Connections
from nova_workers.engines.resilience import Provider, ResilientResponder
from nova_workers.engines.tool_turns import OfferedTools, ToolTurns, note_of
from nova_workers.engines.turn import Draft

_MOST_REFUSING = 1_000
"""Models and options that a process remembers: an operator's gateway may have any number of models."""


class RefusedOptions:
    """What models have refused in this process, so that each costs one refused request and not one a turn."""

    def __init__(self) -> None:
        self._known: dict[str, frozenset[str]] = {}

    def of(self, model: str) -> Iterable[str]:
        """Return the options that a model refused."""
        return self._known.get(model, frozenset())

    def add(self, model: str, option: str) -> None:
        """Remember that a model refuses an option."""
        if model in self._known or len(self._known) < _MOST_REFUSING:
            self._known[model] = self._known.get(model, frozenset()) | {option}


class LeftOutOptions:
    """What the requests of one turn go without."""

    def __init__(self, refused: RefusedOptions, *, has_temperature: bool) -> None:
        """Take what models have refused in this process, and whether the turn asks for a temperature."""
        self.refused = refused
        self._has_temperature = has_temperature
        self._noted: set[tuple[str, str]] = set()

    def of(self, model: str, request: Container[str], draft: Draft) -> list[str]:
        """Return the options of a request that its model refuses. Each that it goes without is noted once.

        Args:
            request: The names of all options in it. A temperature may be missing already.
            draft: Gets the note.
        """
        refused = [option for option in self.refused.of(model) if option in request]
        absent = ("temperature",) if self._has_temperature and "temperature" not in request else ()
        for option in (*refused, *absent):
            if (model, option) not in self._noted:
                self._noted.add((model, option))
                draft.leave_out(option, note_of(option, f"The model {model!r}"))
        return refused


class HttpEngine(ABC):
    """Executes turns through a provider's API.

    One connection pool serves all turns of the process; turns need no threads. The transcript is `options.history`: the
    provider keeps none, so `session_id` is ignored and none is returned.
    """

    def __init__(self, turns: ToolTurns, connections: Connections) -> None:
        """Take what turns share, which the engine closes."""
        self._turns = turns
        self._connections = connections
        self._refused = RefusedOptions()

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
            return EngineResult(text="", stop_reason="error", provider=self._turns.provider, error=refusal)
        listener = callbacks or TurnListener()
        async with self._turns.open(options, trust, listener=listener, abort=abort, make_responder=self._responder) as (
            turn,
            offered,
        ):
            result = await turn.play(message, provider=self._turns.provider)
            return replace(result, tools_available=offered())

    async def close(self) -> None:
        """Close the connection pools."""
        await self._turns.shared.close()
        await self._connections.close()

    def _responder(
        self, options: EngineOptions, tools: OfferedTools, server_tools: tuple[JsonObject, ...]
    ) -> ResilientResponder:
        provider = self._provider(options, tools, server_tools)
        return ResilientResponder(provider, self._models(options), self._turns.shared.resilience, options)

    def _left_out(self, options: EngineOptions) -> LeftOutOptions:
        """Return the options that the requests of a turn go without."""
        return LeftOutOptions(self._refused, has_temperature=options.temperature is not None)

    @abstractmethod
    def _refusal(self, options: EngineOptions) -> EngineError | None:
        """Return why the turn cannot be run as asked, before anything is spent."""

    @abstractmethod
    def _models(self, options: EngineOptions) -> list[str]:
        """Return the id of the turn's model, and those of its fallbacks."""

    @abstractmethod
    def _provider(self, options: EngineOptions, tools: OfferedTools, server_tools: tuple[JsonObject, ...]) -> Provider:
        """Return the responder of the turn's model calls. `server_tools` are those that the provider runs."""
