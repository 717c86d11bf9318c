"""Whether a tool call may be made: one decision for every call of a run, whichever engine asks.

In order: the repeat guard, the trust, the agent's approval rules (the first that fits; ``never`` refuses), the
permission mode of an orchestration's agent (`modes`), the other approval rules, what the tool declares where no rule
fits, and for shell commands the patterns (deny, then ask, then allow, then what the agent says of commands that no
pattern knows). Deny goes before ask and ask before allow, so that a wide permission ("git *") leaves room for a narrow
caution ("git push*").

A rule that always allows a shell command answers what the agent itself would ask or leave unlisted. What is denied, by
the built-in list, the operator or the agent, stays denied, and what the operator wants asked is asked.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

from nova_workers.contracts.agents import ApprovalRule, Permissions
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.engine import ToolAuthorization, ToolCall, TrustLevel
from nova_workers.contracts.native import RESERVED_NAMES, SHELL_TOOL, native_tools
from nova_workers.contracts.orchestration import RUN_BASH
from nova_workers.domain.tool_policy.rules.approvals import describe_rule, first_rule, main_text
from nova_workers.domain.tool_policy.rules.commands import (
    BUILT_IN_DENIALS,
    MAX_COMMANDS,
    MAX_LINE_CHARS,
    matching,
    permitting,
    read_command,
)
from nova_workers.domain.tool_policy.rules.modes import ModeRules

MAX_REPEATS = 3
"""How often a run may run the same shell command. A model that repeats it more often is in a loop."""

_QUOTE_CHARS = 300


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the policy says of a call.

    Attributes:
        kind: ``ask``: a person decides. A caller that can suspend the run does; any other treats it as a refusal.
        rule: What decided: ``repeat``, ``trust``, or a list and its pattern, as in ``deny: rm *`` and
            ``never: note_*``.
        reason: Of a refusal, for the model: what is wrong, and what to do instead. Of a question, for the person: what
            the call does, and why it needs approval. None if allowed.
    """

    kind: Literal["allow", "deny", "ask"]
    rule: str | None = None
    reason: str | None = None

    def authorization(self) -> ToolAuthorization:
        """Return the verdict for an engine that cannot wait: a question to a person is a refusal."""
        reason = self.reason
        if self.kind == "ask":
            reason = (
                f"{reason} Nobody can be asked in this run. Find another way, or say what you would have done and why."
            )
        return ToolAuthorization(self.kind == "allow", reason)


_ALLOW = Verdict("allow")


class CommandPolicy:
    """Judges shell commands by patterns. Keeps nothing.

    Attributes:
        approvals: The agent's rules for calls of any tool; `ToolPolicy` looks at them first.
    """

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
        self.approvals = permissions.approvals
        deny, ask = tuple(deny), tuple(ask)
        self._deny = (*(BUILT_IN_DENIALS if built_in else ()), *deny, *permissions.deny_commands)
        self._operator_ask = ask
        self._ask = permissions.ask_commands
        self._allow = permissions.allow_commands
        self._unlisted = permissions.unlisted_commands
        self._built_in = built_in
        # Whether there are patterns to get around, beside the built-in ones, which are no protection.
        self._cautious = any((*deny, *ask, *permissions.deny_commands, *permissions.ask_commands))

    def judge(self, command: str, *, approved: bool = False) -> Verdict:
        """Return the verdict of the patterns on a command line.

        Args:
            command: The line.
            approved: Whether a rule of the agent allows it already, so that only a deny pattern, or an ask pattern of
                the operator, applies.
        """
        read = read_command(command) if len(command) <= MAX_LINE_CHARS else None
        if read is None or len(read.bare) > MAX_COMMANDS:
            return Verdict("deny", "length", "This command is too long. Write it to a file, and run that.")
        denied = matching(self._deny, *read.visible)
        if denied is None and self._built_in and read.wipes:
            denied = "rm -r of a system directory"
        if denied is not None:
            return _refuse(denied)
        asked = matching(self._operator_ask if approved else (*self._operator_ask, *self._ask), *read.visible)
        if asked is not None:
            return _ask(f"ask: {asked}", command, f"it matches {asked!r}")
        if read.plain and all(permitting(self._allow, words) is not None for words in read.plain):
            return _ALLOW
        return self._judge_unlisted(command, approved=approved, doubtful=self._cautious and not read.readable)

    def _judge_unlisted(self, command: str, *, approved: bool, doubtful: bool) -> Verdict:
        if approved and not doubtful:
            return _ALLOW
        if doubtful and self._unlisted != "deny":
            return _ask("unreadable", command, "it cannot be read, so it may contain a command that a pattern matches")
        if self._unlisted == "allow":
            return _ALLOW
        if self._unlisted == "ask":
            return _ask("unlisted", command, "it is not among the commands that are permitted without asking")
        permitted = ", ".join(repr(pattern) for pattern in self._allow) or "none"
        return Verdict(
            "deny",
            "unlisted",
            "Only these commands are permitted here, without substitution, expansion, redirection or escapes: "
            f"{permitted}.",
        )


class ToolPolicy:
    """Judges the tool calls of one run, and counts them.

    `remember` restores the counts from the run's journal when a run continues in another worker.
    """

    def __init__(
        self,
        trust: TrustLevel,
        commands: CommandPolicy,
        *,
        native_tools_only: Collection[str] | None = None,
        mode: ModeRules | None = None,
        approved_by_people: Collection[str] = (),
    ) -> None:
        """Take what decides.

        Args:
            trust: Of the agent.
            commands: Its permissions.
            native_tools_only: Its allow-list of native tools; None allows all of the trust.
            mode: The rules of its permission mode; None outside orchestrations.
            approved_by_people: Tools that declare that a person approves each call, which a rule of the agent replaces.
        """
        self._trust: TrustLevel = trust
        self._native = frozenset(native_tools(trust, native_tools_only))
        self._commands = commands
        self._mode = mode
        self._approved_by_people = frozenset(approved_by_people)
        self._shells = frozenset({SHELL_TOOL}) if mode is None else frozenset({SHELL_TOOL, RUN_BASH})
        self._made: Counter[str] = Counter()

    def remember(self, calls: Iterable[ToolCall]) -> None:
        """Count calls that the run made before this worker had it."""
        self._made.update(_command(call.params) for call in calls if call.tool_name in self._shells)

    def judge(self, tool_name: str, params: JsonObject) -> Verdict:
        """Return the verdict on a call that is about to be made."""
        tool_name = SHELL_TOOL if tool_name in self._shells else tool_name
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
        rule = first_rule(self._commands.approvals, tool_name, params)
        if rule is not None and rule.decision == "never":
            return Verdict(
                "deny",
                describe_rule(rule),
                f"This agent must not use {tool_name!r} like this. Find another way, or say what you cannot do.",
            )
        by_mode = None if self._mode is None else self._mode.judge(tool_name)
        if by_mode == "deny":
            return _refuse_in_mode(tool_name, self._mode)
        if by_mode == "allow":
            # What is denied, or must be asked by the operator or the orchestration, stands in its way in every mode.
            return self._commands.judge(_command(params), approved=True) if tool_name == SHELL_TOOL else _ALLOW
        return self._judge_by_rules(tool_name, params, rule)

    def _judge_by_rules(self, tool_name: str, params: JsonObject, rule: ApprovalRule | None) -> Verdict:
        approved = rule is not None and rule.decision == "always"
        verdict = self._commands.judge(_command(params), approved=approved) if tool_name == SHELL_TOOL else _ALLOW
        if rule is not None and rule.decision == "ask" and verdict.kind != "deny":
            return Verdict(
                "ask", describe_rule(rule), _question(tool_name, params, "the agent's approval rules say so")
            )
        if rule is None and tool_name in self._approved_by_people and verdict.kind == "allow":
            return Verdict("ask", f"declared: {tool_name}", _question(tool_name, params, "the tool declares it"))
        return verdict


def _refuse_in_mode(tool_name: str, rules: ModeRules | None) -> Verdict:
    mode = None if rules is None else rules.mode
    return Verdict(
        "deny",
        f"mode: {mode}",
        f"In the permission mode {mode} an agent reads and works with other agents; {tool_name!r} does neither. Say "
        "what should be done, or leave it to an agent that may.",
    )


def _refuse(pattern: str) -> Verdict:
    return Verdict(
        "deny",
        f"deny: {pattern}",
        f"This command is not permitted here (it matches {pattern!r}). Do not try it in another form; find another "
        "way, or say what you cannot do.",
    )


def _ask(rule: str, command: str, why: str) -> Verdict:
    return Verdict("ask", rule, f"Running {_brief(command)} needs a person's permission: {why}.")


def _question(tool_name: str, params: JsonObject, why: str) -> str:
    about = main_text(tool_name, params)
    what = tool_name if about is None else f"{tool_name} with {_brief(about)}"
    return f"Using {what} needs a person's permission: {why}."


def _brief(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= _QUOTE_CHARS else line[: _QUOTE_CHARS - 1] + "…")


def _command(params: JsonObject) -> str:
    # Not all white space: bash takes most of it for a part of a word.
    return str(params.get("command", "")).strip(" \t\n")
