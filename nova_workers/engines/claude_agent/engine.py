"""The engine on the Claude Agent SDK: Claude Code as a library.

Each turn runs the Claude Code program that ships with the SDK as a child process, in a private home, in step with the
turn that all engines share (see `nova_workers.engines.claude_agent.responder`). A turn is dearer than with the
`anthropic` engine: a process of 215 MB and 0.5 to 0.7 s of CPU before the first token (measured). `max_processes`
bounds them.

**Sessions.** Every turn leaves a session in the store that the options bring, and the next turn resumes it if it tells
the same conversation as the ledger; else, and after a crash, the session is made anew from the ledger's messages, to
the last committed step. So any worker goes on with any conversation, also with one that another engine began.

**What the program does not give**, and what is done about it:

- `temperature`: it has no such option; it is left out.
- Several keys, the fleet's rate limit and breaker: the program makes its calls itself, with the first key, and retries
  them itself.
- An answer that was cut at `max_tokens` the program asks for again by itself. The step is committed, but the program
  does not wait for that; a drain or a crash at that moment may pay for the same model call twice.
- Tools of its own (files, Bash) run at the same time only where the program thinks it safe.
- A call of its own tools that exceeds `tool_timeout_s` is given up in the ledger, but ends in the program only by its
  own limit, or with the turn.
- Subagents are seen (text, thinking, calls) and authorized, but not journalled: one that was cut is begun anew. What
  they used is added to the turn's last step. `SubagentConfig.max_turns` is passed on.
- What it puts before the model beside the conversation (environment, skills, reminders) is in sessions, not the ledger.
- Its own compaction is on; the ledger's comes first as long as the fleet compacts below the program's threshold.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.content import JsonObject, text_block
from nova_workers.contracts.engine import EngineCallbacks, EngineError, EngineOptions, EngineResult, TrustLevel
from nova_workers.contracts.ports import WebFetcher
from nova_workers.engines.anthropic.prices import ModelPrice, Prices
from nova_workers.engines.claude_agent.home import inherited, make_home, sweep
from nova_workers.engines.claude_agent.launching import Launcher, ProgramSettings
from nova_workers.engines.claude_agent.playing import ClaudeTurn, Shared
from nova_workers.engines.connection_pool import ConnectionPool
from nova_workers.engines.models import resolve_model
from nova_workers.engines.native import NativeTools
from nova_workers.errors import EngineFailure

__all__ = ["ClaudeAgentEngine"]


class ClaudeAgentEngine:
    """Executes turns through the Claude Code program."""

    name = "claude_agent"

    def __init__(
        self,
        *,
        environment: Mapping[str, str],
        api_key: str | None = None,
        base_url: str | None = None,
        aliases: Mapping[str, str] | None = None,
        max_tokens: int = 8192,
        request_timeout_s: float = 600.0,
        max_retries: int = 2,
        max_processes: int = 8,
        program: Path | None = None,
        fetcher: WebFetcher | None = None,
        prices: Mapping[str, ModelPrice] | None = None,
        connections: ConnectionPool | None = None,
    ) -> None:
        """Keep what turns share. A program is started by each turn, so that one that is missing fails no worker.

        Args:
            environment: The worker's. The program gets of it what lets it find programs, certificates and proxies, and
                the key and base URL where the next two say none.
            api_key: None takes ANTHROPIC_API_KEY; without any, each turn fails as ``auth_failure``.
            base_url: None takes ANTHROPIC_BASE_URL, then the program's own.
            aliases: Overrides of the alias map.
            max_tokens: Most tokens of a response, where the options do not say.
            request_timeout_s: Longest wait for the provider.
            max_retries: How often the program tries a model call again.
            max_processes: Most programs at the same time; further turns wait for one to end.
            program: None takes the one in the SDK, then ``claude`` on the PATH.
            fetcher: Behind WebFetch; None offers none.
            prices: Overrides of the price list, by alias or id.
            connections: The process's MCP connections, which the engine closes; None makes some of its own.
        """
        sweep()
        self._settings = ProgramSettings(
            program=program,
            environment=inherited(environment),
            api_key=api_key or environment.get("ANTHROPIC_API_KEY"),
            base_url=base_url or environment.get("ANTHROPIC_BASE_URL"),
            aliases=dict(aliases or {}),
            max_tokens=max_tokens,
            max_retries=max_retries,
            request_timeout_s=request_timeout_s,
        )
        self._native = NativeTools(fetcher=fetcher)
        by_id = {resolve_model(name, aliases): price for name, price in (prices or {}).items()}
        self._shared = Shared(asyncio.Semaphore(max_processes), connections or ConnectionPool(), Prices(by_id))

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
        content = (text_block(message),) if isinstance(message, str) else message
        try:
            home = await asyncio.to_thread(make_home, options.cwd, options.directories)
        except EngineFailure as failure:
            return self._failed(failure)
        try:
            turn = ClaudeTurn(
                self._shared,
                options,
                callbacks or EngineCallbacks(),
                launcher=Launcher(self._settings, options, trust, home),
                home=home,
                # Files and shell are the program's; of ours only WebFetch is offered, which needs no directories.
                native=self._native.for_turn(EngineOptions(), trust),
                session_id=session_id,
            )
            return await turn.play(content, abort, provider=self.name)
        finally:
            await asyncio.to_thread(home.remove)

    async def close(self) -> None:
        """Let go of threads and connections. Programs end with their turns."""
        self._native.close()
        await self._shared.connections.close()

    def _failed(self, failure: EngineFailure) -> EngineResult:
        error = EngineError(failure.kind, failure.message, failure.retryable)
        return EngineResult(text="", stop_reason="error", provider=self.name, error=error)
