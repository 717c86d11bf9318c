"""Glob and Grep: the SDK's names and arguments, and its confinement; the search itself runs in a program of its own.

Why not the SDK's own two: they search on the calling thread with Python's ``re``, whose only limit in time is a signal
that needs the main thread (which no turn runs on), and hand ripgrep's whole output to memory where there is ripgrep.
"""

import asyncio
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Final

from anthropic.lib.tools.agent_toolset import AgentToolContext, resolve_path
from pydantic import Field

from nova_workers.child_process import Bounds, run_child
from nova_workers.contracts.content import JsonObject
from nova_workers.engines.native import search_child
from nova_workers.engines.native.files import in_thread
from nova_workers.engines.native.seam import NativeTool, ToolInput, text_outcome
from nova_workers.engines.toolbox import ToolDefinition
from nova_workers.engines.turn import ToolOutcome
from nova_workers.errors import ToolFailure

__all__ = ["Search"]

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


class Search:
    """The searching tools of one turn."""

    def __init__(self, context: AgentToolContext, threads: ThreadPoolExecutor, running: asyncio.Semaphore) -> None:
        """Search where `context` allows; `running` bounds the searches of the process."""
        self._context = context
        self._threads = threads
        self._running = running

    def tools(self) -> list[NativeTool]:
        """Return Glob and Grep."""
        return [self._tool("Glob"), self._tool("Grep")]

    def _tool(self, name: str) -> NativeTool:
        async def run(given: JsonObject) -> ToolOutcome:
            return await self._run(name, _SearchInput.read(name, given))

        definition = ToolDefinition(name, _DESCRIPTIONS[name], _SearchInput.schema_for_model(), idempotent=True)
        return NativeTool(definition, run)

    async def _run(self, name: str, asked: _SearchInput) -> ToolOutcome:
        root = await in_thread(self._threads, self._root, name, asked.path or ".")
        request = json.dumps({"tool": name, "root": str(root), "pattern": asked.pattern}).encode()
        async with self._running:
            result = await run_child(_COMMAND, Bounds(_TIMEOUT_S, _MAX_OUTPUT_BYTES), env={}, given=request)
        if result.exit_code is None:
            raise ToolFailure(f"{name}: it took longer than {_TIMEOUT_S:g} s. Narrow the search.", tool=name)
        if result.exit_code:
            raise ToolFailure(f"{name}: {result.text() or 'the search failed'}", tool=name)
        return text_outcome(result.text())

    def _root(self, name: str, path: str) -> Path:
        try:
            root = resolve_path(self._context, path)
        except ValueError as error:
            raise ToolFailure(f"{name}: {error}", tool=name) from error
        if not root.exists():
            raise ToolFailure(f"{name}: {path!r} does not exist.", tool=name)
        return root
