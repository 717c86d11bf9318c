"""The scripted engine: a simulated model that follows a script, for tests, load and chaos."""

from dataclasses import replace

from nova_workers.base.errors import ConfigurationError, EngineFailure
from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.content import JsonObject, Message, text_block
from nova_workers.contracts.engine import (
    EngineError,
    EngineOptions,
    EngineResult,
    TrustLevel,
    TurnListener,
)
from nova_workers.engines.mcp.pool import ConnectionPool
from nova_workers.engines.mcp.toolbox import Toolbox
from nova_workers.engines.scripted.player import Echo, Player, PlayerTools
from nova_workers.engines.scripted.script import find_script
from nova_workers.engines.turn import Interruption, Turn


class ScriptedEngine:
    """Runs the script in ``options.engine_config["script"]``, or in a message of the form ``{"script": […]}``.

    Without a script it echoes. It is deterministic: the same script gives the same messages, call ids and text in every
    attempt. It has no native tools at any trust level, and keeps no sessions.
    """

    name = "scripted"

    def __init__(self, *, environment: str, connections: ConnectionPool | None = None) -> None:
        """Create the engine; refused in production, where a message must not control what the model does.

        Raises:
            ConfigurationError: `environment` is ``production``.
        """
        if environment == "production":
            raise ConfigurationError(
                "The scripted engine does what a message's script says and must not run in production. "
                "Set NOVA_DEFAULT_ENGINE=anthropic, and give no agent the engine 'scripted'."
            )
        self._connections = connections or ConnectionPool()

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
        content = (text_block(message),) if isinstance(message, str) else message
        try:
            responses = find_script(Message("user", content), options)
        except EngineFailure as failure:
            return EngineResult(
                text="",
                stop_reason="error",
                provider=self.name,
                error=EngineError.of(failure),
            )
        listener = callbacks or TurnListener()
        toolbox = (
            Toolbox(
                options.mcp_servers,
                pool=self._connections,
                report_progress=listener.on_tool_progress,
                report_away=listener.on_tool_servers,
            )
            if options.mcp_servers and responses
            else None
        )
        tools = PlayerTools(responses or (), toolbox)
        system = options.system_prompt or ""
        responder = (
            Echo(system)
            if responses is None
            else Player(responses, options.run_id or "local", options.allowance, system=system, toolbox=toolbox)
        )
        try:
            with Interruption(abort, options.timeout_s) as interruption:
                # Only the message can contain a script, and an echo repeats the user's text.
                plain = replace(options, event_context=None)
                left_out = None if toolbox is None else lambda: toolbox.left_out
                turn = Turn(responder, tools, plain, listener, interruption, left_out=left_out)
                result = await turn.play(content, provider=self.name)
            return replace(result, tools_available=() if toolbox is None else toolbox.offered)
        finally:
            if toolbox is not None:
                await toolbox.close()

    async def close(self) -> None:
        """Close the MCP connections."""
        await self._connections.close()
