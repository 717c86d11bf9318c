"""The real programs of the engines `codex` and `gemini`, and a client of editors. `make programs` installs them."""

import shutil
from pathlib import Path

from nova_workers.engines.codex import Codex

CODEX = Codex()
"""One for all tests of a process: it looks at the installed version, and at each model, once."""

_HOME = Path(__file__).parent / "vendor_programs"
_BIN = _HOME / "node_modules" / ".bin"

ACP_CLIENT = _HOME / "acp_client.mjs"
"""An editor by the SDK for TypeScript, run by Node."""


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


def why_no_acp_client() -> str | None:
    """Return why the editor cannot run here, or None where it can."""
    if shutil.which("node") is None:
        return "Node is not installed"
    if not (_HOME / "node_modules" / "@agentclientprotocol" / "sdk").exists():
        return "the SDK of editors is not installed; `make programs` does it, where npm is"
    return None
