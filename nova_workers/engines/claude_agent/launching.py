"""Converts a turn's options to the program's command line and environment."""

import json
import os
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from nova_workers.contracts.engine import EngineOptions, TrustLevel
from nova_workers.contracts.native import RESERVED_NAMES
from nova_workers.engines.anthropic_probe import Profile
from nova_workers.engines.claude_agent.home import ClaudeHome
from nova_workers.engines.claude_agent.names import BRIDGE
from nova_workers.engines.claude_agent.process import KEY_FD_VARIABLE
from nova_workers.engines.claude_agent.trust import Permissions, permissions
from nova_workers.engines.claude_program import find_program
from nova_workers.engines.models import ALIASES, resolve_model
from nova_workers.engines.programs.process import Launch
from nova_workers.engines.resilience import Route
from nova_workers.engines.turn.answer import answer_request
from nova_workers.shell_sandbox import Enclosed, ShellSandbox

_DEFAULT_MODEL = "sonnet"
_RESUME_INTERRUPTED = "CLAUDE_CODE_RESUME_INTERRUPTED_TURN"
"""Makes the program continue a session that ends in tool results, without a new message from the user."""
_MCP = json.dumps({"mcpServers": {BRIDGE: {"type": "sdk", "name": BRIDGE}}})
_SETTINGS = json.dumps({"skipWebFetchPreflight": True, "includeCoAuthoredBy": False})


@dataclass(frozen=True, slots=True)
class ProgramSettings:
    """Settings that are the same in all turns of a process.

    Attributes:
        program: The executable; None looks for it.
        environment: What the program may have of the worker's environment.
        profiles: The keys, in order of preference. One that is None makes its turns fail as ``auth_failure``; a base
            URL that is None is the program's own.
        aliases: Overrides of the alias map.
        max_tokens: Default limit of a response's tokens.
        max_retries: How often the program tries a model call again.
        request_timeout_s: Longest wait for the provider.
    """

    program: Path | None
    environment: Mapping[str, str]
    profiles: tuple[Profile, ...]
    aliases: Mapping[str, str]
    max_tokens: int
    max_retries: int
    request_timeout_s: float

    def profile(self, name: str) -> Profile:
        """Return a profile by its name."""
        return next(profile for profile in self.profiles if profile.name == name)


class Launcher:
    """Creates the launches of one turn."""

    def __init__(
        self,
        settings: ProgramSettings,
        options: EngineOptions,
        trust: TrustLevel,
        home: ClaudeHome,
        sandbox: ShellSandbox | None = None,
    ) -> None:
        self._sandbox = sandbox
        self._settings = settings
        self._options = options
        self._trust: TrustLevel = trust
        self._home = home
        self._missing: str | None = None
        self._prepared = False
        self.model = self.resolve(options.model or _DEFAULT_MODEL)
        self.skills: tuple[str, ...] = () if trust == "sandbox" else (*home.assigned, *home.skills)

    def resolve(self, alias_or_id: str) -> str:
        """Return the id of a model."""
        return resolve_model(alias_or_id, self._settings.aliases)

    def prepare(self, missing: str | None) -> None:
        """Write the files that the program reads besides its session. Blocks briefly. May be called again.

        `missing` is a note to the model about missing tools.
        """
        self._missing = missing
        self._home.write_prompt(self._prompt())
        if self._prepared:
            return
        self._prepared = True
        if self._home.skills and self._trust == "controlled":
            self._home.offer_skills()

    def launch(self, session_id: str, route: Route, *, resumed: bool, interrupted: bool) -> Launch:
        """Return how to start the program.

        Args:
            route: With which model and key.
            resumed: Whether there is a file of it already.
            interrupted: Whether the session ends where the model has to speak.

        Raises:
            EngineFailure: The turn's directories cannot be confined.
        """
        home = self._home
        allowed = permissions(
            self._trust,
            home.roots,
            readable=(*home.readable, *((home.shelf,) if home.assigned else ())),
            kept=None if self._options.kept is None else Path(os.path.realpath(self._options.kept)),
            skills=bool(self.skills),
            subagents=bool(self._options.agents),
        )
        session = f"--resume={session_id}" if resumed else f"--session-id={session_id}"
        program = str(self._settings.program or find_program())
        command = (program, *self._fixed(route.model), *self._permitted(allowed), session)
        profile = self._settings.profile(route.profile)
        more = self._variables(profile, route.max_tokens)
        if interrupted:
            more[_RESUME_INTERRUPTED] = "1"
        environment = self._home.environment(self._settings.environment, more)
        handed = {} if profile.api_key is None else {KEY_FD_VARIABLE: profile.api_key}
        return Launch(command, environment, str(self._home.cwd), handed=handed, confine=self._confine)

    def _confine(self, command: Sequence[str]) -> AbstractContextManager[Enclosed]:
        """Enclose the program of a tenant with ceilings; hide NOVA_HOME from others. The engine checked the sandbox."""
        home, enclosure, sandbox = self._home, self._options.enclosure, self._sandbox
        if sandbox is None:
            return nullcontext(Enclosed(list(command), ()))
        if enclosure is None or not enclosure.sandbox:
            return nullcontext(Enclosed(sandbox.hide(command, str(home.cwd)), ()))
        return sandbox.enclosed(
            command,
            enclosure,
            cwd=str(home.cwd),
            writable=tuple(map(str, home.roots)),
            read_only=tuple(map(str, home.readable)),
            own=(str(home.private.base),),
            readable=(command[0],),
            # Of the model's server, wherever that is.
            egress="all",
            # Its files in the home are the worker's.
            other_user=False,
        )

    def _prompt(self) -> str:
        schema = self._options.output_schema
        request = None if schema is None else answer_request(schema)
        return "\n\n".join(filter(None, (self._options.system_prompt, request, self._missing)))

    def _fixed(self, model: str) -> tuple[str, ...]:
        options = self._options
        prompt = ("--system-prompt-file", str(self._home.prompt))
        command = [
            *("--output-format", "stream-json", "--input-format", "stream-json", "--verbose"),
            *("--include-partial-messages", "--session-mirror"),
            *(prompt if self._prompt() else ("--system-prompt", "")),
            *("--model", model),
            *("--strict-mcp-config", "--mcp-config", _MCP),
            *("--settings", _SETTINGS),
            f"--setting-sources={self._setting_sources()}",
        ]
        if options.thinking_budget_tokens:
            command += ["--max-thinking-tokens", str(options.thinking_budget_tokens)]
            command += ["--thinking-display", "summarized"]
        else:
            command += ["--thinking", "disabled"]
        for root in self._home.roots[1:]:
            command += ["--add-dir", str(root)]
        return tuple(command)

    def _setting_sources(self) -> str:
        enclosure = self._options.enclosure
        reaches_all = enclosure is None or not enclosure.sandbox or enclosure.egress == "all"
        if self._trust == "unrestricted" and reaches_all:
            # Programs that the project's settings start have the network of this program.
            # It has a shell, so it can already start anything that the project's settings could.
            return "user,project"
        return "user" if self.skills else ""

    def _permitted(self, allowed: Permissions) -> tuple[str, ...]:
        only = self._options.native_tools
        tools = [name for name in allowed.tools if only is None or name in only or name not in RESERVED_NAMES]
        command = ["--permission-mode", allowed.mode, "--tools", ",".join(tools)]
        command += ["--allowedTools", ",".join(allowed.allowed)]
        if allowed.disallowed:
            command += ["--disallowedTools", ",".join(allowed.disallowed)]
        if allowed.skip:
            command.append("--allow-dangerously-skip-permissions")
        return tuple(command)

    @property
    def max_tokens(self) -> int:
        """Most tokens of a response, without a cap."""
        return self._options.max_tokens or self._settings.max_tokens

    def _variables(self, profile: Profile, cap: int | None) -> dict[str, str]:
        settings, options = self._settings, self._options
        most = self.max_tokens
        tool_timeout_ms = str(round(options.tool_timeout_s * 1000))
        variables = {
            "API_TIMEOUT_MS": str(round(settings.request_timeout_s * 1000)),
            "CLAUDE_CODE_MAX_RETRIES": str(settings.max_retries),
            "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(most if cap is None else min(most, cap)),
            "MCP_TOOL_TIMEOUT": tool_timeout_ms,
            "BASH_MAX_TIMEOUT_MS": tool_timeout_ms,
            # The turn has cut it already; cut again, it would differ from the ledger.
            "MAX_MCP_OUTPUT_TOKENS": str(options.max_tool_output_chars),
            **{f"ANTHROPIC_DEFAULT_{alias.upper()}_MODEL": self.resolve(alias) for alias in ALIASES},
        }
        if profile.base_url is not None:
            variables["ANTHROPIC_BASE_URL"] = profile.base_url
        return variables


def new_session_id() -> str:
    """Return an id in the only form that the program accepts."""
    return str(uuid.uuid4())
