"""Glob and Grep: with the SDK's names, arguments and confinement; the search runs in a separate program.

The SDK's implementations do not fit: they open files by name (see `confined`), search on the calling thread with
Python's ``re``, whose only time limit is a signal that needs the main thread (where no turn runs), and read ripgrep's
complete output into memory if ripgrep is installed.
"""

import asyncio
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Final

from pydantic import Field

from nova_workers.base.child_process import Bounds, run_child
from nova_workers.base.confined import Confinement, PrivateFiles
from nova_workers.base.errors import ToolFailure
from nova_workers.contracts.content import JsonObject
from nova_workers.engines.mcp.toolbox import ToolDefinition
from nova_workers.engines.native import search_child
from nova_workers.engines.native.files import in_thread
from nova_workers.engines.native.seam import NativeTool, ToolInput, plain_schema, text_outcome
from nova_workers.engines.turn import ToolOutcome

_TIMEOUT_S = 30.0
_MAX_OUTPUT_BYTES = 4 * search_child.MAX_OUTPUT_CHARS + 1_000
_COMMAND: Final = (sys.executable, "-I", "-S", "-B", search_child.__file__)

_DESCRIPTIONS = {
    "Glob": "List files that match a pattern such as **/*.py, newest first.",
    "Grep": (
        "Search the content of files for a Python regular expression, line by line. Links, .git, node_modules, binary "
        "files and very long lines are left out."
    ),
}


class _SearchInput(ToolInput):
    pattern: Annotated[str, Field(min_length=1, max_length=5_000, description="What to look for.")]
    path: Annotated[
        str | None, Field(description="Directory to look in, or one file; the working directory if left out.")
    ] = None


_DEFINITIONS: Final = {
    name: ToolDefinition(name, description, plain_schema(_SearchInput), idempotent=True, read_only=True)
    for name, description in _DESCRIPTIONS.items()
}


class Search:
    """The search tools of one turn."""

    def __init__(
        self,
        confinement: Confinement,
        threads: ThreadPoolExecutor,
        running: asyncio.Semaphore,
        private: PrivateFiles | None = None,
    ) -> None:
        """Search in the directories of `confinement`.

        Args:
            confinement: The directories.
            threads: Where files are opened.
            running: Limits the process's concurrent searches.
            private: Files in them that are left out.
        """
        self._confinement = confinement
        self._private = private
        self._threads = threads
        self._running = running

    def tools(self) -> list[NativeTool]:
        """Return Glob and Grep."""
        return [self._tool("Glob"), self._tool("Grep")]

    def _tool(self, name: str) -> NativeTool:
        async def run(given: JsonObject) -> ToolOutcome:
            return await self._run(name, _SearchInput.read(name, given))

        return NativeTool(_DEFINITIONS[name], run)

    async def _run(self, name: str, asked: _SearchInput) -> ToolOutcome:
        async with self._running:
            shown, place = await in_thread(self._threads, self._open, name, asked.path or ".", undo=_close)
            try:
                request = json.dumps(
                    {
                        "tool": name,
                        "shown": shown,
                        "place": place,
                        "pattern": asked.pattern,
                        "private": _texts(self._private),
                    }
                )
                bounds = Bounds(_TIMEOUT_S, _MAX_OUTPUT_BYTES)
                result = await run_child((*_COMMAND, request), bounds, env={}, passed=(place,))
            finally:
                os.close(place)
        if result.exit_code is None:
            raise ToolFailure(f"{name}: it took longer than {_TIMEOUT_S:g} s. Narrow the search.", tool=name)
        if result.exit_code:
            raise ToolFailure(f"{name}: {result.text() or 'the search failed'}", tool=name)
        return text_outcome(result.text())

    def _open(self, name: str, path: str) -> tuple[str, int]:
        try:
            target = self._confinement.resolve(path)
            return str(target), self._confinement.open_place(target)
        except OSError as error:
            raise ToolFailure(f"{name}: {path!r}: {(error.strerror or 'cannot be read').lower()}", tool=name) from error
        except ValueError as error:
            raise ToolFailure(f"{name}: {error}", tool=name) from error


def _close(opened: tuple[str, int]) -> None:
    os.close(opened[1])


def _texts(private: PrivateFiles | None) -> list[str]:
    if private is None:
        return []
    resolved = private.resolved()
    return [str(resolved.home), str(resolved.workspace)]
