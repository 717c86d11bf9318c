"""The real programs of the engines `codex` and `gemini`. `make programs` installs them."""

import shutil
from pathlib import Path

from nova_workers.engines.codex import Codex

CODEX = Codex()
"""One for all tests of a process: it looks at the installed version, and at each model, once."""

_BIN = Path(__file__).parent / "vendor_programs" / "node_modules" / ".bin"


def program_path(name: str) -> Path:
    """Return where the program is, or would be."""
    return _BIN / name


def why_no_program(name: str) -> str | None:
    """Return why the program cannot run here, or None where it can."""
    if shutil.which("node") is None:
        return "Node is not installed"
    if not program_path(name).exists():
        return f"the program {name!r} is not installed; `make programs` does it, where npm is"
    return None
