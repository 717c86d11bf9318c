"""Tools of `nova send` that run on this machine: each call is a command, which gets the arguments on stdin."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field, StringConstraints, TypeAdapter, ValidationError

from nova_workers.base.errors import InvalidInput, NovaError
from nova_workers.base.stopping import stop_tasks
from nova_workers.base.validation import place_of, problem_of
from nova_workers.cli.command import Session
from nova_workers.contracts.events import Waiting
from nova_workers.contracts.http.wire import RunView
from nova_workers.contracts.run_options import ClientTool
from nova_workers.contracts.waits import CallClientTool, ToolResult, ToolResults

_MOST_BYTES: Final = 1_000_000
"""How much of a command's output is kept."""
_MOST_AT_ONCE: Final = 8


class _LocalTool(ClientTool):
    """A tool in the file, with the command that executes it."""

    command: Annotated[list[Annotated[str, StringConstraints(min_length=1)]], Field(min_length=1)] | None = None
    """Program and arguments. None: the result comes from elsewhere."""


_tools = TypeAdapter(tuple[_LocalTool, ...])


def read_tools(path: Path) -> tuple[_LocalTool, ...]:
    """Read a file with a JSON list of tools.

    Raises:
        InvalidInput: It cannot be read, or has another form; says where.
    """
    try:
        return _tools.validate_json(path.read_bytes())
    except OSError as error:
        raise InvalidInput(f"--tools {path}: {error.strerror}.", field="tools") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InvalidInput(f"--tools {path}: {place_of(first)}: {problem_of(first)}.", field="tools") from error


@dataclass
class LocalTools:
    """Executes calls of a run. A call is executed once, however often its event arrives."""

    session: Session
    commands: Mapping[str, list[str]]
    _begun: set[str] = field(default_factory=set[str])
    _room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MOST_AT_ONCE))
    _calls: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    @classmethod
    @asynccontextmanager
    async def open(cls, session: Session, tools: tuple[_LocalTool, ...]) -> AsyncGenerator[LocalTools]:
        """Execute calls within the block; those that still run at its end are stopped."""
        commands = {tool.name: tool.command for tool in tools if tool.command is not None}
        local = cls(session, commands)
        try:
            yield local
        finally:
            await stop_tasks(local._calls)

    def take(self, run_id: str, event: Waiting) -> None:
        """Begin the call that an event names, if it is for a tool of the caller."""
        if event.tool_name is not None and event.tool_call_id is not None:
            self._begin(run_id, event.tool_call_id, event.tool_name, event.params or {})

    def take_all(self, run: RunView) -> None:
        """Begin the calls that a run waits for."""
        for wait in run.waits:
            if isinstance(wait.request, CallClientTool):
                self._begin(run.id, wait.tool_call_id, wait.request.tool_name, wait.request.params)

    def _begin(self, run_id: str, call_id: str, name: str, params: dict[str, Any]) -> None:
        if call_id in self._begun:
            return
        self._begun.add(call_id)
        if name in self.commands:
            call = asyncio.create_task(self._execute(run_id, call_id, self.commands[name], params))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)
        else:
            arguments = json.dumps(params, ensure_ascii=False)
            how = f"give its result with `nova runs result {run_id} {call_id} TEXT`"
            self.session.out.note(f"⏸ waits for {name} {arguments}; {how}")

    async def _execute(self, run_id: str, call_id: str, command: list[str], params: dict[str, Any]) -> None:
        async with self._room:
            text, failed = await _run(command, json.dumps(params).encode())
        result = ToolResult(tool_call_id=call_id, content=text, is_error=failed)
        try:
            await self.session.client.runs.give_results(run_id, ToolResults(results=[result]))
        except NovaError as error:
            # Another program was first, the time was over, the run was canceled, or the API does not answer.
            self.session.out.note(f"The result of {command[0]} was not taken: {error.message}", "yellow")


async def _run(command: list[str], given: bytes) -> tuple[str, bool]:
    """Run a command; return its output, or what it says of its failure, and whether it failed."""
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
    except OSError as error:
        return f"{command[0]} could not be started: {error.strerror}.", True
    try:
        output, errors = await process.communicate(given)
    except asyncio.CancelledError:
        if process.returncode is None:
            process.kill()
        raise
    text = output[:_MOST_BYTES].decode("utf-8", "replace").strip()
    if process.returncode == 0:
        return text, False
    why = errors[-_MOST_BYTES:].decode("utf-8", "replace").strip() or text
    return f"{command[0]} failed (status {process.returncode}): {why}", True
