"""The permission modes of agents of orchestrations: what a mode decides before any rule of the agent. Pure."""

from dataclasses import dataclass
from typing import Final, Literal

from nova_workers.base.vocabulary import PermissionMode
from nova_workers.contracts.orchestration import ORCHESTRATION_TOOLS, READ_TOOLS

_ASK_USER: Final = "ask_user"
_EDITS: Final = frozenset({"Write", "Edit"})
_READS: Final = frozenset({*READ_TOOLS, "WebSearch", "WebFetch"})


@dataclass(frozen=True, slots=True)
class ModeRules:
    """The rules of one agent's mode.

    - ``BYPASS`` allows every call.
    - ``PLAN`` and ``DELEGATE`` allow reads and refuse everything else. A child of an agent in PLAN is in PLAN too.
    - ``ACCEPT_EDITS`` allows changes of files without approval.
    - ``DEFAULT`` leaves the decision to the agent's rules and the command policy.

    Orchestration tools and questions to the user are allowed in each. Trust, the rule ``never`` and denied commands
    are no matter of the mode.
    """

    mode: PermissionMode

    def judge(self, tool_name: str) -> Literal["allow", "deny"] | None:
        """Return the verdict of the mode on a tool; None leaves it to the rules."""
        if self.mode == "BYPASS" or tool_name == _ASK_USER or tool_name in ORCHESTRATION_TOOLS:
            return "allow"
        if self.mode in ("PLAN", "DELEGATE"):
            return None if tool_name in _READS else "deny"
        return "allow" if self.mode == "ACCEPT_EDITS" and tool_name in _EDITS else None
