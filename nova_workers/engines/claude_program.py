"""Finds the Claude Code program, and tries whether it starts."""

import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from nova_workers.base.child_process import Bounds, run_child
from nova_workers.base.errors import EngineFailure

_OUTPUT_BYTES: Final = 1_000


def find_program() -> Path:
    """Return the program that the SDK's wheel brings, or the one on the PATH where the wheel brings none.

    Raises:
        EngineFailure: There is none.
    """
    sdk = find_spec("claude_agent_sdk")  # not imported, since the program is tried in processes without a turn of it
    if sdk is not None and sdk.origin is not None:
        bundled = Path(sdk.origin).parent / "_bundled" / "claude"
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


async def why_not_started(program: Path | None, environment: Mapping[str, str], *, timeout_s: float) -> str | None:
    """Return why the program does not start; None if it does. ``--version`` takes it 15 ms (measured), and no home.

    Args:
        program: None finds it.
        environment: Its whole environment.
        timeout_s: Longest time that it may take.
    """
    try:
        command = (str(program or find_program()), "--version")
        done = await run_child(command, Bounds(timeout_s, _OUTPUT_BYTES), env=environment)
    except EngineFailure as failure:
        return failure.message
    except OSError as error:
        return f"the Claude Code program cannot be started: {error.strerror}"
    if done.exit_code is None:
        return f"the Claude Code program takes more than {timeout_s:g} s to start"
    return f"the Claude Code program ends with {done.exit_code}" if done.exit_code else None
