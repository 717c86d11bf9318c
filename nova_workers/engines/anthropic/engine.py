"""The engine on the `anthropic` SDK.

What is the SDK's and what is ours. The SDK speaks HTTP, streams, and converts MCP content
(`beta.messages`, `lib.tools.mcp.mcp_content`). Its retries are off: `nova_workers.engines.resilience` decides what is tried
again, with which key and which model. The loop around it is the turn that all engines
share, and not the SDK's tool runner (2.12, `lib/tools/_beta_runner.py`), because the run protocol needs four
seams that the runner does not have:

- it runs a response's tools one after the other; a step's calls run at the same time here;
- a tool's function gets its input but not its call id, so that the results of two calls with equal input could not
  be journalled apart, nor one of them be resumed after a crash;
- it runs tools inside the iteration that also asks the model, so an abort can cut a tool only by closing the
  runner, and the transcript then lacks results that had come;
- `append_messages` at a step boundary hands the whole turn over to the caller, so steering would mean to run the
  tools ourselves anyway.

Native tools are `nova_workers.engines.native`, by trust; MCP servers work at every level. Subagents, budgets and
compaction are not here yet.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from anthropic.lib.tools.mcp import UnsupportedMCPValueError, mcp_content
from mcp.types import ContentBlock as McpContent

from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.content import ContentBlock, JsonObject
from nova_workers.contracts.engine import EngineCallbacks, EngineOptions, EngineResult, TrustLevel
from nova_workers.contracts.native import RESERVED_NAMES
from nova_workers.engines.anthropic.credentials import Clients, Profile
from nova_workers.engines.anthropic.prices import ModelPrice, Prices
from nova_workers.engines.anthropic.reading import MessageReader
from nova_workers.engines.anthropic.request import fixed_part
from nova_workers.engines.anthropic.responder import AnthropicResponder
from nova_workers.engines.anthropic.windows import Windows
from nova_workers.engines.models import resolve_model
from nova_workers.engines.native import NativeTools, TurnTools
from nova_workers.engines.resilience import Policy, Resilience, ResilientResponder
from nova_workers.engines.toolbox import Toolbox, plain_block
from nova_workers.engines.turn import Interruption, Turn

__all__ = ["AnthropicEngine"]

_T = TypeVar("_T")

_DEFAULT_MODEL = "sonnet"


class AnthropicEngine:
    """Executes turns through the Messages API.

    One client, with one pool of connections, serves all turns of the process; a turn costs no thread. A transcript
    is what `options.history` says: the API keeps none, so `session_id` resumes nothing and none is returned.
    """

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
        max_connections: int = 1000,
        max_retries: int = 5,
        prices: Mapping[str, ModelPrice] | None = None,
        context_windows: Mapping[str, int] | None = None,
        resilience: Resilience | None = None,
        native: NativeTools | None = None,
    ) -> None:
        """Build the client. It connects at the first turn, on the loop of that turn.

        Args:
            api_key: None takes what the SDK finds in the environment; without any, each turn fails as
                ``auth_failure``.
            base_url: None takes ANTHROPIC_BASE_URL, then the SDK's own.
            profiles: Several keys, in order of preference, in place of `api_key`.
            aliases: Overrides of the alias map.
            max_tokens: Most tokens of a response, where the options do not say.
            request_timeout_s: Longest silence of the provider.
            max_connections: Turns that stream at the same time.
            max_retries: Tries after the first for one response, where `resilience` does not say.
            prices: Overrides of the price list, by alias or id.
            context_windows: Overrides of the list of context windows, in tokens, by alias or id.
            resilience: What the process shares of retries, cool-downs, breakers and limits; None shares nothing.
            native: The native tools, offered by trust; None offers those on files only.

        Raises:
            ConfigurationError: The environment names credentials that cannot be read.
        """
        self._clients = Clients(
            profiles or (Profile(api_key=api_key),),
            base_url=base_url,
            request_timeout_s=request_timeout_s,
            max_connections=max_connections,
        )
        self._native = native or NativeTools()
        self._aliases = dict(aliases or {})
        self._max_tokens = max_tokens
        self._reader = MessageReader(Prices(self._by_id(prices or {})))
        self._windows = Windows(self._by_id(context_windows or {}))
        self._resilience = resilience or Resilience.of_one_process(Policy(max_retries=max_retries))

    async def run(  # noqa: PLR0917 - the contract's signature
        self,
        message: str | tuple[JsonObject, ...],
        options: EngineOptions,
        trust: TrustLevel,
        session_id: str | None = None,
        callbacks: EngineCallbacks | None = None,
        abort: AbortSignal | None = None,
    ) -> EngineResult:
        """Execute one turn. See `nova_workers.contracts.engine.Engine.run`."""
        models = [self._resolve(model) for model in (options.model or _DEFAULT_MODEL, *options.fallback_models)]
        native = self._native.for_turn(options, trust)
        toolbox = TurnTools(native, Toolbox(options.mcp_servers, _block, RESERVED_NAMES))
        provider = AnthropicResponder(
            self._clients,
            toolbox,
            self._reader,
            lambda model, tools, away: fixed_part(
                model, options, tools.values(), self._max_tokens, native.server_tools, away
            ),
            self._windows,
            history=len(options.history),
        )
        responder = ResilientResponder(provider, models, self._resilience)
        try:
            with Interruption(abort, options.timeout_s) as interruption:
                turn = Turn(responder, toolbox, options, callbacks or EngineCallbacks(), interruption)
                return await turn.play(message, provider=self.name)
        finally:
            await toolbox.close()

    async def close(self) -> None:
        """Close the pool of connections."""
        self._native.close()
        await self._clients.close()

    def _resolve(self, model: str) -> str:
        return resolve_model(model, self._aliases)

    def _by_id(self, by_name: Mapping[str, _T]) -> dict[str, _T]:
        return {self._resolve(name): value for name, value in by_name.items()}


def _block(content: McpContent) -> ContentBlock:
    try:
        return dict(mcp_content(content))
    except UnsupportedMCPValueError:
        # Audio, links and odd files: the model is told that there was something.
        return plain_block(content)
