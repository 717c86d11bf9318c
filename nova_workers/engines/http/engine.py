"""The base of the engines that ask a model over HTTP.

The loop is the turn that all engines share, and not an agent loop of a vendor's SDK: see
`nova_workers.engines.anthropic.engine`.
"""

from abc import ABC, abstractmethod

from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.engine import EngineError, EngineOptions, EngineResult, TrustLevel, TurnListener
from nova_workers.engines.http.connections import Connections
from nova_workers.engines.resilience import Provider, ResilientResponder
from nova_workers.engines.tool_turns import OfferedTools, ToolTurns

__all__ = ["HttpEngine"]


class HttpEngine(ABC):
    """Executes turns through a provider's API.

    One connection pool serves all turns of the process; turns need no threads. The transcript is `options.history`: the
    provider keeps none, so `session_id` is ignored and none is returned.
    """

    def __init__(self, turns: ToolTurns, connections: Connections) -> None:
        """Take what turns share, which the engine closes."""
        self._turns = turns
        self._connections = connections

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
        return await self._turns.play(
            message, options, trust, listener=listener, abort=abort, make_responder=self._responder
        )

    async def close(self) -> None:
        """Close the connection pools."""
        await self._turns.shared.close()
        await self._connections.close()

    def _responder(
        self, options: EngineOptions, tools: OfferedTools, server_tools: tuple[JsonObject, ...]
    ) -> ResilientResponder:
        provider = self._provider(options, tools, server_tools)
        return ResilientResponder(provider, self._models(options), self._turns.shared.resilience, options)

    @abstractmethod
    def _refusal(self, options: EngineOptions) -> EngineError | None:
        """Return why the turn cannot be run as asked, before anything is spent."""

    @abstractmethod
    def _models(self, options: EngineOptions) -> list[str]:
        """Return the id of the turn's model, and those of its fallbacks."""

    @abstractmethod
    def _provider(self, options: EngineOptions, tools: OfferedTools, server_tools: tuple[JsonObject, ...]) -> Provider:
        """Return the responder of the turn's model calls. `server_tools` are those that the provider runs."""
