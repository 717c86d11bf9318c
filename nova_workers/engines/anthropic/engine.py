"""The engine on the `anthropic` SDK.

The SDK handles HTTP and parses the stream's events (`beta.messages`). Its retries are off:
`nova_workers.engines.resilience` decides about retries, keys and models. The loop is the turn that all engines share,
and not the SDK's tool runner (2.12, `lib/tools/_beta_runner.py`), because the run protocol needs four things that the
runner does not offer:

- it runs a response's tools sequentially; here a step's calls run concurrently;
- a tool's function gets its input but not its call id, so that the results of two calls with equal input could not
  be journalled apart, nor one of them be resumed after a crash;
- it runs tools inside the iteration that also calls the model, so an abort can stop a tool only by closing the runner,
  and the transcript then lacks results that had arrived;
- `append_messages` at a step boundary leaves the rest of the turn to the caller, so with steering we would have to run
  the tools ourselves.

Native tools are `nova_workers.engines.native`, by trust; MCP servers work at every level; subagents are
`nova_workers.engines.subagents`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import httpx2

from nova_workers.contracts.content import ContentBlock, JsonObject
from nova_workers.contracts.engine import (
    EngineError,
    EngineOptions,
    ForwardingListener,
    StepRecord,
    StepVerdict,
    ToolCall,
    TurnListener,
)
from nova_workers.contracts.native import SEARCH_TOOL, SEARCH_WIRE_NAME
from nova_workers.contracts.summaries import tool_use_summary
from nova_workers.engines.anthropic.catalog import Prices
from nova_workers.engines.anthropic.credentials import Clients
from nova_workers.engines.anthropic.failures import failure_of
from nova_workers.engines.anthropic.request import fixed_part
from nova_workers.engines.anthropic.responder import AnthropicResponder, Reading
from nova_workers.engines.anthropic_probe import Profile
from nova_workers.engines.http.connections import Connections
from nova_workers.engines.http.engine import HttpEngine
from nova_workers.engines.http.probing import why_not_reached
from nova_workers.engines.mcp.pool import ConnectionPool
from nova_workers.engines.models import resolve_model
from nova_workers.engines.native import NativeTools, Toolset
from nova_workers.engines.prices import ModelPrice, unpriced
from nova_workers.engines.resilience import Resilience
from nova_workers.engines.tool_turns import OfferedTools, SharedParts, ToolTurns
from nova_workers.engines.windows import Windows

_T = TypeVar("_T")

_DEFAULT_MODEL = "sonnet"


class AnthropicEngine(HttpEngine):
    """Executes turns through the Messages API."""

    name = "anthropic"

    def __init__(
        self,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        profiles: Sequence[Profile] = (),
        aliases: Mapping[str, str] | None = None,
        max_tokens: int = 8192,
        request_timeout_s: float = 600.0,
        first_byte_timeout_s: float = 120.0,
        max_connections: int = 1000,
        max_retries: int = 5,
        prices: Mapping[str, ModelPrice] | None = None,
        windows: Windows | None = None,
        resilience: Resilience | None = None,
        native: NativeTools | None = None,
        connections: ConnectionPool | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """Create the client. It connects in the first turn, on that turn's loop.

        Args:
            api_key: None uses the SDK's environment variables; without any key, each turn fails with ``auth_failure``.
            base_url: None uses ANTHROPIC_BASE_URL, or else the SDK's default.
            profiles: Several keys, in order of preference, instead of `api_key`.
            aliases: Overrides of the alias map.
            max_tokens: Default limit of a response's tokens.
            request_timeout_s: Longest pause in the provider's response.
            first_byte_timeout_s: Longest wait until a response begins; then it is retried, or another model is used.
            max_connections: Limit of turns that stream concurrently.
            max_retries: Retries per response; used only without `resilience`.
            prices: Overrides of the price list, by alias or id.
            windows: Limits of models; None uses the list's.
            resilience: The process's shared cool-downs, breakers and rate limits; None shares nothing.
            native: The native tools, offered by trust; None offers only the file tools.
            connections: The process's MCP connections, which the engine closes; None creates its own pool.
            transport: Sends the requests; None uses the library's own.

        Raises:
            ConfigurationError: The environment names credentials that cannot be read.
        """
        shared = SharedParts.given(native, connections, resilience, max_retries=max_retries)
        http = Connections(request_timeout_s=request_timeout_s, max_connections=max_connections, transport=transport)
        super().__init__(ToolTurns(self.name, shared, admit=_permitted, watch=_AnnouncedSearches), http)
        self._clients = Clients(profiles or (Profile(api_key=api_key),), http, base_url=base_url)
        self._aliases = dict(aliases or {})
        self._max_tokens = max_tokens
        self._prices = Prices(self._by_id(prices or {}))
        self._reading = Reading(self._prices, first_byte_timeout_s)
        self._windows = windows or Windows(aliases=aliases)

    def _provider(
        self, options: EngineOptions, tools: OfferedTools, server_tools: tuple[JsonObject, ...]
    ) -> AnthropicResponder:
        return AnthropicResponder(
            self._clients,
            tools,
            self._reading,
            lambda model, offered, missing: fixed_part(
                model,
                options,
                offered.values(),
                self._max_tokens,
                server_tools=server_tools,
                missing=missing,
            ),
            self._windows,
            left_out=self._left_out(options),
            options=options,
        )

    def _models(self, options: EngineOptions) -> list[str]:
        return [self._resolve(model) for model in (options.model or _DEFAULT_MODEL, *options.fallback_models)]

    def _refusal(self, options: EngineOptions) -> EngineError | None:
        model = self._models(options)[0]
        if options.cost_budget_usd is None or self._prices.knows(model):
            return None
        return unpriced(model, "NOVA_MODEL__PRICES")

    async def probe(self, *, timeout_s: float) -> dict[str, str | None]:
        """Ask for the list of models. See `nova_workers.contracts.engine.ProbedEngine.probe`."""

        def request(profile: str) -> Callable[[], Awaitable[object]]:
            models = self._clients.of(profile).models.with_raw_response
            return lambda: models.list(limit=1, timeout=timeout_s)

        requests = {name: request(name) for name in self._clients.profiles}
        return {"": await why_not_reached(requests, failure_of, timeout_s=timeout_s)}

    def _resolve(self, model: str) -> str:
        return resolve_model(model, self._aliases)

    def _by_id(self, by_name: Mapping[str, _T]) -> dict[str, _T]:
        return {self._resolve(name): value for name, value in by_name.items()}


async def _permitted(native: Toolset, listener: TurnListener) -> Toolset:
    """Return the tools, without the provider's search if the caller does not allow it.

    Authorization is requested once and without a query, since the provider chooses queries and runs them itself. So a
    search that needs a person's approval is not offered either.

    Raises:
        RunLost: The listener raised it.
    """
    if not native.server_tools:
        return native
    return native if await listener.may_offer(SEARCH_TOOL) else replace(native, server_tools=())


class _AnnouncedSearches(ForwardingListener):
    """Reports searches like other calls, once their response is complete."""

    async def on_step(self, step: StepRecord) -> StepVerdict:
        """Report the searches of the step before it is committed."""
        for message in step.messages:
            for block in message.content:
                if block.get("type") == "server_tool_use" and block.get("name") == SEARCH_WIRE_NAME:
                    self._announce(_call(block, step.index))
        return await self._to.on_step(step)

    def _announce(self, call: ToolCall) -> None:
        summary = tool_use_summary(call.tool_name, call.params)
        self._to.on_provider_call(call.tool_name)
        self._to.on_tool_use(call, summary)
        self._to.on_tool_use_summary(summary)


def _call(block: ContentBlock, step: int) -> ToolCall:
    return ToolCall(block["id"], SEARCH_TOOL, block["input"], step, sequence=0, status="completed")
