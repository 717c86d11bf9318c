"""Translates trust to the program's tools and permission rules.

============  =================  ======================================================================
trust         permission mode    tools
============  =================  ======================================================================
sandbox       dontAsk            none but subagents; the MCP pattern is allowed, Bash is disallowed
controlled    dontAsk            files under the roots, WebSearch, skills, subagents; Bash is disallowed
unrestricted  bypassPermissions  the same and Bash, with the flag that skips every check
============  =================  ======================================================================

``dontAsk`` refuses everything that no rule allows, including paths outside the roots; the program resolves symbolic
links before it compares, and also protects its own settings under ``.claude``. So each restriction is enforced twice: a
tool that trust withholds is neither in the program's tool set nor allowed by a rule. For an unrestricted turn only the
tool set restricts, and the refusal of processes' files in ``/proc``.

If the fleet confines commands, the program treats an unrestricted turn as controlled, and the bridge offers our own
Bash in the sandbox.

The program's WebFetch sends each host name to a service of its vendor, and fetches from any address, including private
ones. It is never offered. If the fleet has a guarded fetcher, the bridge offers that under the same name.
"""

from dataclasses import dataclass
from pathlib import Path

from nova_workers.base.errors import EngineFailure
from nova_workers.contracts.engine import TrustLevel
from nova_workers.contracts.native import FILE_TOOLS, SHELL_TOOL
from nova_workers.engines.claude_agent.names import BRIDGE_PATTERN, SUBAGENT_TOOL

_SEARCH = "WebSearch"
_SKILL = "Skill"
_OF_PROCESSES = tuple(
    f"{tool}(//proc/{whose}/**)" for tool in ("Read", "Edit") for whose in ("[0-9]*", "self", "thread-self")
)
"""What the kernel shows of processes, the worker's environment included. The program obeys refusals in every mode, and
also refuses commands such as ``cat`` for these files. The machine's own, such as ``/proc/cpuinfo``, stay."""
_RULE_SYNTAX = frozenset("()[]{}*?!,\\\n\r")


@dataclass(frozen=True, slots=True)
class Permissions:
    """The program's permission settings."""

    mode: str
    tools: tuple[str, ...]
    allowed: tuple[str, ...]
    disallowed: tuple[str, ...] = ()
    skip: bool = False
    """Whether every check may be skipped."""


def permissions(
    trust: TrustLevel,
    roots: tuple[Path, ...],
    *,
    readable: tuple[Path, ...] = (),
    kept: Path | None = None,
    skills: bool,
    subagents: bool,
) -> Permissions:
    """Return the permissions for a trust level.

    Args:
        trust: The level.
        roots: Resolved directories that files are confined to. Empty: there are no tools on files.
        readable: Further directories whose files can be read and not written.
        kept: A folder in the roots whose files can be read and not written.
        skills: Whether the turn has skills. A sandbox has none, since a skill is a file.
        subagents: Whether the turn has subagents. They have no tools that the turn does not have.

    Raises:
        EngineFailure: A root's path cannot be expressed in a rule.
    """
    refused = _OF_PROCESSES if kept is None else (*_OF_PROCESSES, f"Edit(/{_rule_path(kept)}/**)")
    helpers = (SUBAGENT_TOOL,) if subagents else ()
    if trust == "sandbox":
        return Permissions("dontAsk", helpers, (BRIDGE_PATTERN, *helpers), (SHELL_TOOL,))
    files = FILE_TOOLS if roots else ()
    beside = (_SEARCH, *((_SKILL,) if skills else ()), *helpers)
    if trust == "controlled":
        # Rules for Read hold for Glob and Grep too, those for Edit for Write.
        confined = tuple(f"{tool}(/{_rule_path(root)}/**)" for root in roots for tool in ("Read", "Edit"))
        confined += tuple(f"Read(/{_rule_path(path)}/**)" for path in readable)
        return Permissions("dontAsk", (*files, *beside), (BRIDGE_PATTERN, *confined, *beside), (SHELL_TOOL, *refused))
    shell = (SHELL_TOOL,) if roots else ()
    return Permissions("bypassPermissions", (*files, *beside, *shell), (BRIDGE_PATTERN,), refused, skip=True)


def _rule_path(root: Path) -> str:
    path = str(root)
    if _RULE_SYNTAX & set(path):
        raise EngineFailure(
            f"The directory {path!r} has a character in its name that has a meaning in permission rules, so that the "
            "agent could not be confined to it. Use a directory without any of ( ) [ ] { } * ? ! , and backslash.",
            kind="unknown",
            retryable=False,
        )
    return path
