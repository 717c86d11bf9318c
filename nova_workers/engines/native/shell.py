"""Bash, the native tool: one process per call (`nova_workers.engines.commands`)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Final

from pydantic import Field

from nova_workers.contracts.agents import Enclosure
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.native import SHELL_TOOL
from nova_workers.engines.commands import CommandRunner, ShellSettings
from nova_workers.engines.mcp.toolbox import ToolDefinition
from nova_workers.engines.native.seam import NativeTool, ToolInput, plain_schema, text_outcome
from nova_workers.engines.turn import ToolOutcome

_DESCRIPTION = (
    "Run a command with bash in the working directory and return what it prints, errors included. Each call is a new "
    "shell: directory changes, variables and background processes end with it. Standard input is empty. Output beyond "
    "the limit is cut in the middle."
)


class _BashInput(ToolInput):
    command: Annotated[str, Field(min_length=1, max_length=100_000, description="The command.")]
    timeout_ms: Annotated[int | None, Field(gt=0, description="Most time that it may take, in milliseconds.")] = None


_DEFINITION: Final = ToolDefinition(SHELL_TOOL, _DESCRIPTION, plain_schema(_BashInput), idempotent=False)


class Shell:
    """The native tool: runs the commands of one turn."""

    def __init__(
        self,
        settings: ShellSettings,
        cwd: str,
        directories: Sequence[str],
        *,
        readable: Sequence[str] = (),
        max_timeout_s: float,
        enclosure: Enclosure | None = None,
    ) -> None:
        self._enclosure = enclosure
        self._runner = CommandRunner(replace(settings, max_timeout_s=min(settings.max_timeout_s, max_timeout_s)))
        self._cwd = cwd
        self._directories = tuple(directories)
        self._readable = tuple(readable)

    def tool(self) -> NativeTool:
        """Return the tool."""
        return NativeTool(_DEFINITION, self._run)

    async def _run(self, given: JsonObject) -> ToolOutcome:
        asked = _BashInput.read(SHELL_TOOL, given)
        timeout_s = None if asked.timeout_ms is None else asked.timeout_ms / 1000
        done = await self._runner.run(
            asked.command,
            cwd=self._cwd,
            writable=self._directories,
            readable=self._readable,
            timeout_s=timeout_s,
            enclosure=self._enclosure,
        )
        return text_outcome(done.text, failed=done.failed)
