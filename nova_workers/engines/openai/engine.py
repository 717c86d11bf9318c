"""The engine on the `openai` SDK, for OpenAI and every server that speaks one of its two wire forms.

A provider is configuration and not code: base URL, wire form, keys, what its models support (`OpenAIProvider`). The SDK
handles HTTP and parses the streams' events. Its retries are off: `nova_workers.engines.resilience` decides about
retries, keys and models. The loop is the turn that all engines share, and not an agent loop of the vendor's, for the
reasons in `nova_workers.engines.anthropic.engine`.

The provider's own tools, such as its web search, are not offered: a server that speaks the same wire form need not have
them, and the caller could not authorize their calls.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

import httpx2

from nova_workers.base.errors import EngineFailure
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.engine import EngineError, EngineOptions
from nova_workers.engines.http.connections import Connections
from nova_workers.engines.http.engine import HttpEngine
from nova_workers.engines.http.probing import why_not_reached
from nova_workers.engines.mcp.pool import ConnectionPool
from nova_workers.engines.native import NativeTools
from nova_workers.engines.openai.catalog import Catalog
from nova_workers.engines.openai.clients import Clients
from nova_workers.engines.openai.failures import failure_of
from nova_workers.engines.openai.provider import OpenAIProvider
from nova_workers.engines.openai.responder import OpenAIResponder, Reading
from nova_workers.engines.prices import unpriced
from nova_workers.engines.resilience import Resilience
from nova_workers.engines.tool_schemas import OPENAI, OPENAI_COMPATIBLE, ToolLimits
from nova_workers.engines.tool_turns import OfferedTools, SharedParts, ToolTurns

_DEFAULT_MODEL = "sonnet"


class OpenAIEngine(HttpEngine):
    """Executes turns through the Responses API or chat completions."""

    name = "openai"

    def __init__(
        self,
        catalog: Catalog,
        *,
        fallbacks: Sequence[str] | None = None,
        max_tokens: int = 8192,
        request_timeout_s: float = 600.0,
        first_byte_timeout_s: float = 120.0,
        max_connections: int = 1000,
        max_retries: int = 5,
        resilience: Resilience | None = None,
        native: NativeTools | None = None,
        connections: ConnectionPool | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """Create the clients. They connect in the first turn, on that turn's loop.

        Args:
            catalog: The providers and their models.
            fallbacks: Models that replace the options' fallback models; None keeps those.
            max_tokens: Default limit of a response's tokens.
            request_timeout_s: Longest pause in the provider's response.
            first_byte_timeout_s: Longest wait until a response begins; then it is retried, or another model is used.
            max_connections: Limit of turns that stream concurrently.
            max_retries: Retries per response; used only without `resilience`.
            resilience: The process's shared cool-downs, breakers and rate limits; None shares nothing.
            native: The native tools, offered by trust; None offers only the file tools.
            connections: The process's MCP connections, which the engine closes; None creates its own pool.
            transport: Sends the requests; None uses the library's own.
        """
        shared = SharedParts.given(native, connections, resilience, max_retries=max_retries)
        http = Connections(request_timeout_s=request_timeout_s, max_connections=max_connections, transport=transport)
        super().__init__(ToolTurns(self.name, shared, limits=self._tool_limits), http)
        self._catalog = catalog
        self._clients = Clients(catalog.providers.values(), http)
        self._fallbacks = fallbacks
        self._reading = Reading(max_tokens, first_byte_timeout_s)

    async def probe(self, *, timeout_s: float) -> dict[str, str | None]:
        """Ask each provider for its models. See `nova_workers.contracts.engine.ProbedEngine.probe`."""

        async def probe(provider: OpenAIProvider) -> str | None:
            requests = {name: partial(self._list_models, name, timeout_s) for name, _ in provider.profiles}
            return await why_not_reached(requests, failure_of, timeout_s=timeout_s)

        providers = self._catalog.providers
        reasons = await asyncio.gather(*(probe(provider) for provider in providers.values()))
        return dict(zip(providers, reasons, strict=True))

    async def _list_models(self, profile: str, timeout_s: float) -> object:
        return await self._clients.of(profile).models.with_raw_response.list(timeout=timeout_s)

    def _provider(
        self, options: EngineOptions, tools: OfferedTools, server_tools: tuple[JsonObject, ...]
    ) -> OpenAIResponder:
        left_out = self._left_out(options)
        return OpenAIResponder(self._clients, self._catalog, tools, options, self._reading, left_out=left_out)

    def _models(self, options: EngineOptions) -> list[str]:
        fallbacks = options.fallback_models if self._fallbacks is None else self._fallbacks
        return [self._catalog.id(model) for model in (options.model or _DEFAULT_MODEL, *fallbacks)]

    def _tool_limits(self, options: EngineOptions) -> ToolLimits:
        """Return the limits that fit all servers which the turn may use."""
        providers = [self._catalog.target(model).provider for model in self._models(options)]
        return OPENAI if any(provider.is_openai for provider in providers) else OPENAI_COMPATIBLE

    def _refusal(self, options: EngineOptions) -> EngineError | None:
        try:
            target = self._catalog.target(options.model or _DEFAULT_MODEL)
            self._models(options)
            for agent in options.agents.values():
                if agent.model is not None:
                    self._catalog.target(agent.model)
        except EngineFailure as failure:
            return EngineError.of(failure)
        if options.cost_budget_usd is None or self._catalog.prices(target).knows(target.model):
            return None
        return unpriced(target.id, "`prices` of its provider in NOVA_OPENAI__PROVIDERS")
