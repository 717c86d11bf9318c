"""Runs speech programs with a limited environment, and turns their failures into tool errors."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from nova_workers.base.child_process import Bounds, ChildResult, run_child
from nova_workers.base.errors import ToolFailure

_KEPT_ENVIRONMENT: Final = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "PYTHONHOME",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
    "HF_HOME",
    "CUDA_VISIBLE_DEVICES",
)
"""None of them has a key or a password."""

_OUTPUT_BYTES: Final = 4_000_000
_ERROR_CHARS: Final = 400


async def run_program(
    command: Sequence[str], *, timeout_s: float, given: bytes | None = None, cwd: Path | None = None
) -> ChildResult:
    """Run a program to its end, and return what it wrote.

    Raises:
        ToolFailure: It cannot be started, took too long or failed; has the end of its output.
    """
    name = Path(command[0]).name
    environment = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    # Missing models must not be downloaded in the middle of a turn.
    environment["HF_HUB_OFFLINE"] = "1"
    bounds = Bounds(timeout_s, head_bytes=_OUTPUT_BYTES)
    try:
        done = await run_child(
            command,
            bounds,
            env=environment,
            cwd=None if cwd is None else str(cwd),
            given=given,
            with_errors=True,
        )
    except OSError as error:
        raise ToolFailure(f"{name} cannot be started on this worker: {error.strerror}.") from error
    if done.exit_code is None:
        raise ToolFailure(f"{name} was not done after {timeout_s:g} s and was stopped. Try a shorter piece.")
    if done.exit_code != 0:
        said = done.text().strip()[-_ERROR_CHARS:]
        raise ToolFailure(f"{name} failed (status {done.exit_code}): {said or 'it did not say why'}")
    return done
