"""The program's only MCP server: a relay to the bridge to the turn's tools."""

import sys
from pathlib import Path

from nova_workers.engines.programs import relay

SERVER = "nova"
"""Its name."""


def relay_command(socket: Path) -> tuple[str, ...]:
    """Return its command.

    Args:
        socket: Where the bridge listens.
    """
    return (sys.executable, "-I", "-S", "-B", str(relay.__file__), str(socket))
