"""The engine on the Claude Agent SDK: Claude Code as a library.

Each turn runs the Claude Code program that ships with the SDK as a child process, in a private home, synchronised with
the turn that all engines share (see `nova_workers.engines.claude_agent.responder`). A turn costs more than with the
`anthropic` engine: a process of 215 MB and 0.5 to 0.7 s of CPU before the first token (measured). `max_processes`
limits them.

**Sessions.** Every turn saves a session in the options' store, and the next turn resumes it if its conversation equals
the ledger's. Otherwise, and after a crash, a new session is created from the ledger's messages up to the last committed
step. So any worker can continue any conversation, including one that another engine began.

**Limits of the program**, and how they are handled:

- `temperature`: it has no such option; a turn goes on without.
- A program has one key and one model. Keys, cool-downs, breakers, rate limits and fallbacks are shared with all engines
  of the provider; to use another key or model, a new program continues from the conversation, without the old one's own
  notes. To survive a short failure the program retries twice itself first, unless there is another key. Calls of
  subagents are not counted against the rate limit.
- A call whose result comes from outside ends the program. Another continues from the ledger when it is there. The
  program's own tools that waited for permission are then executed by ours of the same name.
- After an answer that was cut off at `max_tokens` the program calls the model again by itself. The step is committed,
  but the program does not wait for that; a drain or a crash at that moment may pay for the same model call twice.
- Its own tools (files, Bash) run concurrently only if the program considers it safe.
- A call of its own tools that exceeds `tool_timeout_s` has timed out in the ledger, but ends in the program only by its
  own limit, or with the turn.
- Subagents are published (text, thinking, calls) and authorized, but not journalled: an interrupted one starts again.
  Their usage is added to the turn's last step. `SubagentConfig.max_turns` is passed on.
- What it sends to the model besides the conversation (environment, skills, reminders) is in sessions, not in the
  ledger.
- Its own compaction is on; the ledger's comes first as long as the fleet compacts below the program's threshold.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from nova_workers.base.confined import PrivateFiles
from nova_workers.base.errors import EngineFailure
from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.content import JsonObject, text_block
from nova_workers.contracts.engine import EngineError, EngineOptions, EngineResult, TrustLevel, TurnListener
from nova_workers.contracts.native import SHELL_TOOL
from nova_workers.contracts.ports import WebFetcher
from nova_workers.engines.anthropic.catalog import Prices
from nova_workers.engines.anthropic_probe import Profile
from nova_workers.engines.claude_agent.home import make_home
from nova_workers.engines.claude_agent.launching import Launcher, ProgramSettings
from nova_workers.engines.claude_agent.playing import ClaudeTurn, Shared
from nova_workers.engines.claude_program import why_not_started
from nova_workers.engines.mcp.pool import ConnectionPool
from nova_workers.engines.models import resolve_model
from nova_workers.engines.native import NativeTools, ShellSettings
from nova_workers.engines.prices import ModelPrice
from nova_workers.engines.programs.environment import inherited
from nova_workers.engines.programs.home import sweep
from nova_workers.engines.resilience import Resilience
from nova_workers.engines.tool_turns import SharedParts, note_of
from nova_workers.engines.windows import Windows

_OWN_RETRIES = 2


class ClaudeAgentEngine:
    """Executes turns through the Claude Code program."""

    name = "claude_agent"

    def __init__(
        self,
        *,
        environment: Mapping[str, str],
        api_key: str | None = None,
        base_url: str | None = None,
        profiles: Sequence[Profile] = (),
        resilience: Resilience | None = None,
        windows: Windows | None = None,
        aliases: Mapping[str, str] | None = None,
        max_tokens: int = 8192,
        request_timeout_s: float = 600.0,
        max_retries: int = 2,
        max_processes: int = 8,
        program: Path | None = None,
        fetcher: WebFetcher | None = None,
        shell: ShellSettings | None = None,
        prices: Mapping[str, ModelPrice] | None = None,
        connections: ConnectionPool | None = None,
        private: PrivateFiles | None = None,
    ) -> None:
        """Set up what turns share. Each turn starts its program, so a missing program does not fail the worker.

        Args:
            environment: The worker's. The program gets of it what lets it find programs, certificates and proxies, and
                the key and base URL where the next two say none.
            api_key: None takes ANTHROPIC_API_KEY; without any, each turn fails as ``auth_failure``.
            base_url: None takes ANTHROPIC_BASE_URL, then the program's own.
            profiles: Several keys, in order of preference, in place of `api_key`.
            resilience: What the process shares of cool-downs, breakers and limits; None shares nothing.
            windows: What models take and give; None knows what the list says.
            aliases: Overrides of the alias map.
            max_tokens: Most tokens of a response, where the options do not say.
            request_timeout_s: Longest wait for the provider.
            max_retries: Tries after the first for one response, where `resilience` does not say.
            max_processes: Most programs at the same time; further turns wait for one to end.
            program: None takes the one in the SDK, then ``claude`` on the PATH.
            fetcher: Behind WebFetch; None offers none.
            shell: How commands are run that waited for permission, and with a sandbox all commands; the program then
                gets no shell of its own, and its tools on files keep to the directories. None refuses what waited.
            prices: Overrides of the price list, by alias or id.
            connections: The process's MCP connections, which the engine closes; None makes some of its own.
            private: Files that no tool opens.
        """
        sweep()
        native = NativeTools(fetcher=fetcher, shell=shell, private=private)
        self._parts = parts = SharedParts.given(native, connections, resilience, max_retries=max_retries)
        known = _complete(profiles or (Profile(api_key=api_key),), base_url, environment)
        self._settings = ProgramSettings(
            program=program,
            environment=inherited(environment),
            profiles=known,
            aliases=dict(aliases or {}),
            max_tokens=max_tokens,
            max_retries=min(_OWN_RETRIES, parts.resilience.policy.max_retries) if len(known) == 1 else 0,
            request_timeout_s=request_timeout_s,
        )
        self._confines_commands = shell is not None and shell.sandbox is not None
        self._enclosing = None if shell is None else shell.enclosing
        self._why_none = "No sandbox is set up." if shell is None else shell.why_none
        by_id = {resolve_model(name, aliases): price for name, price in (prices or {}).items()}
        self._shared = Shared(
            asyncio.Semaphore(max_processes),
            parts.connections,
            Prices(by_id),
            windows or Windows(aliases=aliases),
            known,
            parts.resilience,
        )

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
        enclosed = options.enclosure is not None and options.enclosure.sandbox
        if enclosed and self._enclosing is None:
            return self._failed(
                EngineFailure(
                    "The program of the engine 'claude_agent' runs in the sandbox for this tenant, and this worker has "
                    f"none. {self._why_none}",
                    kind="unknown",
                    retryable=True,
                )
            )
        confines_commands = self._confines_commands or enclosed or bool(options.readable)
        listener = callbacks or TurnListener()
        if options.temperature is not None:
            listener.on_option_left_out("temperature", note_of("temperature", f"The engine {self.name!r}"))
        try:
            home = await asyncio.to_thread(
                make_home, options.cwd, options.directories, options.skills, readable=options.readable
            )
        except EngineFailure as failure:
            return self._failed(failure)
        try:
            own = self._parts.native.for_turn(options, trust)
            turn = ClaudeTurn(
                self._shared,
                options,
                listener,
                launcher=Launcher(
                    self._settings,
                    options,
                    _left_to_the_program(trust, confines_commands=confines_commands),
                    home,
                    self._enclosing,
                ),
                home=home,
                # The program has its own file tools, and its own shell unless commands are confined.
                native=own.only("WebFetch", *((SHELL_TOOL,) if confines_commands else ())),
                own=own,
                session_id=session_id,
            )
            return await turn.play(content, abort, provider=self.name)
        finally:
            await asyncio.to_thread(home.private.remove)

    async def probe(self, *, timeout_s: float) -> dict[str, str | None]:
        """Start the program once. See `nova_workers.contracts.engine.ProbedEngine.probe`.

        The provider is not asked: it is the one of the engine `anthropic`, with the same keys.
        """
        settings = self._settings
        return {"": await why_not_started(settings.program, settings.environment, timeout_s=timeout_s)}

    async def close(self) -> None:
        """Close threads and connections. Programs end with their turns."""
        await self._parts.close()

    def _failed(self, failure: EngineFailure) -> EngineResult:
        error = EngineError.of(failure)
        return EngineResult(text="", stop_reason="error", provider=self.name, error=error)


def _left_to_the_program(trust: TrustLevel, *, confines_commands: bool) -> TrustLevel:
    """Return the program's trust: if commands are confined, it must not run them itself."""
    return "controlled" if trust == "unrestricted" and confines_commands else trust


def _complete(profiles: Sequence[Profile], base_url: str | None, environment: Mapping[str, str]) -> tuple[Profile, ...]:
    """Return the profiles with missing values taken from the environment."""
    url = base_url or environment.get("ANTHROPIC_BASE_URL")
    return tuple(
        replace(
            profile,
            api_key=profile.api_key or environment.get("ANTHROPIC_API_KEY"),
            base_url=profile.base_url or url,
        )
        for profile in profiles
    )
