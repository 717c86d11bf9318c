"""Finds the Claude Code program."""

import shutil
from pathlib import Path

import claude_agent_sdk

from nova_workers.errors import EngineFailure

__all__ = ["find_program"]


def find_program() -> Path:
    """Return the program that the SDK's wheel brings, or the one on the PATH where the wheel brings none.

    Raises:
        EngineFailure: There is none.
    """
    bundled = Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude"
    if bundled.is_file():
        return bundled
    found = shutil.which("claude")
    if found is None:
        raise EngineFailure(
            "The claude_agent engine needs the Claude Code program, and this platform's wheel of claude-agent-sdk "
            "brings none. Install it, or set NOVA_CLAUDE_AGENT__PROGRAM to where it is.",
            kind="unknown",
            retryable=False,
        )
    return Path(found)
