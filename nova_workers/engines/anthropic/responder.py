"""Gets the responses of one turn from the Messages API."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import structlog

from nova_workers.engines.anthropic.credentials import Clients
from nova_workers.engines.anthropic.failures import failure_of
from nova_workers.engines.anthropic.reading import MessageReader
from nova_workers.engines.anthropic.request import with_cap, with_messages
from nova_workers.engines.anthropic.windows import Windows
from nova_workers.engines.resilience import ModelLimits, Route, TokenEstimate
from nova_workers.engines.toolbox import ToolDefinition
from nova_workers.engines.turn import Ask, Draft, Response

__all__ = ["AnthropicResponder", "OfferedTools"]

_log = structlog.get_logger(__name__)


class OfferedTools(Protocol):
    """What the model is offered, known once the servers are connected."""

    async def connect(self) -> Mapping[str, ToolDefinition]:
        """Return all tools by name, in a stable order."""
        ...

    @property
    def unreachable(self) -> tuple[str, ...]:
        """Names of the servers that did not answer."""
        ...


BuildRequest = Callable[[str, Mapping[str, ToolDefinition], tuple[str, ...]], dict[str, Any]]
"""Makes the part of the request that stays the same through the turn: of the model, the tools, and servers that are
away."""


class AnthropicResponder:
    """Makes the tries of one turn: implements `nova_workers.engines.resilience.Provider`."""

    name = "anthropic"

    def __init__(
        self,
        clients: Clients,
        tools: OfferedTools,
        reader: MessageReader,
        build_request: BuildRequest,
        windows: Windows,
        *,
        history: int,
    ) -> None:
        """Take what all responses of a turn share.

        Args:
            clients: The process's clients.
            tools: The turn's tools; connected at the first response.
            reader: Makes the calls.
            build_request: See there.
            windows: What models take.
            history: How many of the messages are older than the turn.
        """
        self._clients = clients
        self._tools = tools
        self._reader = reader
        self._build_request = build_request
        self._windows = windows
        self._history = history
        self._requests: dict[str, dict[str, Any]] = {}
        self._estimate = TokenEstimate()

    @property
    def profiles(self) -> tuple[str, ...]:
        """See `Provider.profiles`."""
        return self._clients.profiles

    async def attempt(self, route: Route, ask: Ask, draft: Draft) -> Response:
        """Try once. See `Provider.attempt`."""
        fixed = await self._fixed(route.model)
        if route.max_tokens is not None:
            fixed = with_cap(fixed, route.max_tokens)
        request = with_messages(fixed, ask.messages, self._history)
        try:
            response = await self._reader.read(self._clients.of(route.profile), request, draft)
        except Exception as error:
            # The seam to the vendor: whatever it raises becomes a failure of the turn, in the contract's words.
            failure = failure_of(error)
            if failure.kind == "unknown":
                _log.exception("model_call_failed", model=route.model)
            raise failure from error
        used = response.usage
        self._estimate.learn(len(ask.messages), used.input_tokens + used.cache_read_tokens + used.cache_write_tokens)
        return response

    async def estimate_tokens(self, ask: Ask) -> int:
        """See `Provider.estimate_tokens`."""
        fixed = next(iter(self._requests.values()), None) or await self._fixed("")
        return self._estimate.of(ask.messages, (fixed.get("system"), fixed.get("tools")))

    def limits(self, model: str) -> ModelLimits:
        """See `Provider.limits`."""
        return self._windows.limits(model)

    async def _fixed(self, model: str) -> dict[str, Any]:
        request = self._requests.get(model)
        if request is None:
            tools = await self._tools.connect()
            request = self._requests[model] = self._build_request(model, tools, self._tools.unreachable)
        return request
