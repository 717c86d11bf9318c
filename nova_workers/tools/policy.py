"""Whether a tool call may be made: one decision for every call of a run, whichever engine asks.

In order: the repeat guard, the trust, and for shell commands the patterns (deny, then ask, then allow, then what the
agent says of commands that no pattern knows). The first that objects decides. Deny goes before ask and ask before
allow, so that a wide permission ("git *") leaves room for a narrow caution ("git push*").
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from nova_workers.contracts.agents import Permissions
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.engine import ToolAuthorization, ToolCall, TrustLevel
from nova_workers.contracts.native import RESERVED_NAMES, SHELL_TOOL, native_tools
from nova_workers.tools.commands import BUILT_IN_DENIALS, MAX_COMMANDS, MAX_LINE_CHARS, matching, read_command

__all__ = ["MAX_REPEATS", "CommandPolicy", "ToolPolicy", "Verdict"]

MAX_REPEATS = 3
"""How often a run may make the same shell command. A model that repeats itself more often is going round in circles."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the policy says of a call.

    Attributes:
        kind: ``ask`` is neither: a person decides. Whoever can let the run wait for that person does; whoever cannot
            treats it as a refusal.
        rule: What decided: ``repeat``, ``trust``, or a list and its pattern, as in ``deny: rm *``.
        reason: For the model: what is wrong, and what it may do instead. None if allowed.
    """

    kind: Literal["allow", "deny", "ask"]
    rule: str | None = None
    reason: str | None = None

    def authorization(self) -> ToolAuthorization:
        """Return the verdict for an engine that cannot wait: a question to a person is a refusal."""
        return ToolAuthorization(self.kind == "allow", self.reason)


_ALLOW = Verdict("allow")


class CommandPolicy:
    """Judges shell commands by patterns. Keeps nothing."""

    def __init__(
        self, permissions: Permissions, *, deny: Iterable[str] = (), ask: Iterable[str] = (), built_in: bool = True
    ) -> None:
        """Take the patterns of an agent, and those that the operator adds for all.

        Args:
            permissions: The agent's own.
            deny: Further commands that are refused.
            ask: Further commands that a person decides.
            built_in: Whether the built-in list of refused commands applies.
        """
        self._deny = (*(BUILT_IN_DENIALS if built_in else ()), *deny, *permissions.deny_commands)
        self._ask = (*ask, *permissions.ask_commands)
        self._allow = permissions.allow_commands
        self._unlisted = permissions.unlisted_commands
        self._built_in = built_in

    def judge(self, command: str) -> Verdict:
        """Return what the patterns say of a command line."""
        read = read_command(command) if len(command) <= MAX_LINE_CHARS else None
        if read is None or len(read.bare) > MAX_COMMANDS:
            return Verdict("deny", "length", "This command is too long. Write it to a file, and run that.")
        seen = tuple(dict.fromkeys((read.line, *read.commands, *read.bare)))
        denied = matching(self._deny, *seen)
        if denied is None and self._built_in and read.wipes:
            denied = "rm -r of a system directory"
        if denied is not None:
            return _refuse(denied)
        asked = matching(self._ask, *seen)
        if asked is not None:
            return _ask(f"ask: {asked}", f"it matches {asked!r}")
        if read.transparent and all(matching(self._allow, command) is not None for command in read.commands):
            return _ALLOW
        return self._judge_unlisted()

    def _judge_unlisted(self) -> Verdict:
        if self._unlisted == "allow":
            return _ALLOW
        if self._unlisted == "ask":
            return _ask("unlisted", "it is not among the commands that are permitted without asking")
        permitted = ", ".join(repr(pattern) for pattern in self._allow) or "none"
        return Verdict(
            "deny",
            "unlisted",
            f"Only these commands are permitted here, without substitution, redirection or escapes: {permitted}.",
        )


class ToolPolicy:
    """Judges the tool calls of one run, and remembers what it needs to of them.

    What it remembers can be had from the run's journal, so that a run that goes on in another worker is judged as if it
    had stayed: `remember` takes the calls that were made before.
    """

    def __init__(self, trust: TrustLevel, commands: CommandPolicy) -> None:
        self._trust: TrustLevel = trust
        self._native = frozenset(native_tools(trust))
        self._commands = commands
        self._made: Counter[str] = Counter()

    def remember(self, calls: Iterable[ToolCall]) -> None:
        """Count calls that the run made before this worker had it."""
        self._made.update(_command(call.params) for call in calls if call.tool_name == SHELL_TOOL)

    def judge(self, tool_name: str, params: JsonObject) -> Verdict:
        """Return the verdict on a call that is about to be made."""
        if tool_name == SHELL_TOOL:
            command = _command(params)
            self._made[command] += 1
            if self._made[command] > MAX_REPEATS:
                return Verdict(
                    "deny",
                    "repeat",
                    f"This command ran {MAX_REPEATS} times in this run. Running it again will not help; look at what "
                    "it printed and do something else.",
                )
        if tool_name in RESERVED_NAMES and tool_name not in self._native:
            return Verdict(
                "deny", "trust", f"There is no tool {tool_name!r} at the trust {self._trust!r} of this agent."
            )
        return self._commands.judge(_command(params)) if tool_name == SHELL_TOOL else _ALLOW


def _refuse(pattern: str) -> Verdict:
    return Verdict(
        "deny",
        f"deny: {pattern}",
        f"This command is not permitted here (it matches {pattern!r}). Do not try it in another form; find another "
        "way, or say what you cannot do.",
    )


def _ask(rule: str, why: str) -> Verdict:
    return Verdict(
        "ask",
        rule,
        f"This command needs a person's permission ({why}), and nobody can be asked in this run. Find another way, or "
        "say what you would run and why.",
    )


def _command(params: JsonObject) -> str:
    return str(params.get("command", "")).strip()
