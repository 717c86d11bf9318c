"""The engine on the `anthropic` SDK.

What is the SDK's and what is ours. The SDK streams, accumulates, retries before the first byte, and converts MCP
content (`beta.messages.stream`, `lib.tools.mcp.mcp_content`). The loop around it is the turn that all engines
share, and not the SDK's tool runner (2.12, `lib/tools/_beta_runner.py`), because the run protocol needs four
seams that the runner does not have:

- it runs a response's tools one after the other; a step's calls run at the same time here;
- a tool's function gets its input but not its call id, so that the results of two calls with equal input could not
  be journalled apart, nor one of them be resumed after a crash;
- it runs tools inside the iteration that also asks the model, so an abort can cut a tool only by closing the
  runner, and the transcript then lacks results that had come;
- `append_messages` at a step boundary hands the whole turn over to the caller, so steering would mean to run the
  tools ourselves anyway.

Native tools by trust level, subagents, credential rotation, model fallback, budgets and compaction are not
here yet: trust is accepted, and offers no native tool at any level. MCP servers work at every level.
"""

from collections.abc import Mapping

import httpx2
from anthropic import AsyncAnthropic, CredentialsError, DefaultAsyncHttpxClient
from anthropic.lib.tools.mcp import UnsupportedMCPValueError, mcp_content
from mcp.types import ContentBlock as McpContent

from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.content import ContentBlock, JsonObject
from nova_workers.contracts.engine import EngineCallbacks, EngineOptions, EngineResult, TrustLevel
from nova_workers.engines.anthropic.prices import Prices
from nova_workers.engines.anthropic.request import fixed_part
from nova_workers.engines.anthropic.responder import AnthropicResponder
from nova_workers.engines.models import resolve_model
from nova_workers.engines.toolbox import Toolbox, plain_block
from nova_workers.engines.turn import Interruption, Turn
from nova_workers.errors import ConfigurationError

__all__ = ["AnthropicEngine"]

_DEFAULT_MODEL = "sonnet"
_CONNECT_TIMEOUT_S = 5.0


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
        aliases: Mapping[str, str] | None = None,
        max_tokens: int = 8192,
        request_timeout_s: float = 600.0,
        max_connections: int = 1000,
        max_retries: int = 2,
    ) -> None:
        """Build the client. It connects at the first turn, on the loop of that turn.

        Args:
            api_key: None takes what the SDK finds in the environment; without any, each turn fails as
                ``auth_failure``.
            base_url: None takes ANTHROPIC_BASE_URL, then the SDK's own.
            aliases: Overrides of the alias map.
            max_tokens: Most tokens of a response, where the options do not say.
            request_timeout_s: Longest silence of the provider.
            max_connections: Turns that stream at the same time.
            max_retries: How often the SDK tries again before the first byte.

        Raises:
            ConfigurationError: The environment names credentials that cannot be read.
        """
        timeout = httpx2.Timeout(request_timeout_s, connect=_CONNECT_TIMEOUT_S)
        limits = httpx2.Limits(max_connections=max_connections, max_keepalive_connections=max_connections)
        try:
            self._client = AsyncAnthropic(
                api_key=api_key,
                base_url=base_url,
                timeout=timeout,
                max_retries=max_retries,
                http_client=DefaultAsyncHttpxClient(timeout=timeout, limits=limits),
            )
        except CredentialsError as error:
            raise ConfigurationError(f"The anthropic SDK cannot read its credentials: {error}") from error
        self._aliases = dict(aliases or {})
        self._max_tokens = max_tokens
        self._prices = Prices()

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
        model = resolve_model(options.model or _DEFAULT_MODEL, self._aliases)
        toolbox = Toolbox(options.mcp_servers, _block)
        responder = AnthropicResponder(
            self._client,
            toolbox,
            self._prices,
            lambda tools: fixed_part(model, options, tools, self._max_tokens),
        )
        try:
            with Interruption(abort, options.timeout_s) as interruption:
                turn = Turn(responder, toolbox, options, callbacks or EngineCallbacks(), interruption)
                return await turn.play(message, provider=self.name)
        finally:
            await toolbox.close()

    async def close(self) -> None:
        """Close the pool of connections."""
        await self._client.close()


def _block(content: McpContent) -> ContentBlock:
    try:
        return dict(mcp_content(content))
    except UnsupportedMCPValueError:
        # Audio, links and odd files: the model is told that there was something.
        return plain_block(content)
