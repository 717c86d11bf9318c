"""Looks at the disks of a worker's machine, for its log and for `nova doctor`, which runs elsewhere."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Final

import structlog

from nova_workers.base.observability.machine import lost_with, short_of_room

_log = structlog.get_logger(__name__)

_EVERY_S: Final = 60.0


class MachineWatch:
    """Looks every minute until canceled, in a thread: a network drive that hangs holds up nothing else.

    Attributes:
        warnings: What was found at the last look, in sentences for operators.
    """

    def __init__(self, workspace_root: Path) -> None:
        self._workspace_root = workspace_root
        self.warnings: tuple[str, ...] = ()

    async def run(self) -> None:
        """Look until canceled. Each warning is logged when it appears."""
        while True:
            try:
                found = await asyncio.to_thread(self.look)
            except Exception:
                _log.exception("machine.not_looked_at")
            else:
                for warning in found:
                    if warning not in self.warnings:
                        _log.warning("machine.warning", warning=warning)
                self.warnings = found
            await asyncio.sleep(_EVERY_S)

    def look(self) -> tuple[str, ...]:
        """Return the settings of the machine that an operator should change. Blocks."""
        root, temporary = self._workspace_root, Path(tempfile.gettempdir())
        found: list[str] = []
        if (end := lost_with(root)) is not None:
            found.append(f"files of agents in {str(root)!r} end with {end}")
        for name, path in (("files of agents", root), ("temporary files", temporary)):
            try:
                is_short = short_of_room(path) is not None
            except OSError as error:
                found.append(f"{name} in {str(path)!r} cannot be looked at: {error.strerror or error}")
                continue
            if is_short:
                # Without the numbers, which change at each look: it is logged once.
                found.append(f"no room for {name} in {str(path)!r}")
        return tuple(found)
