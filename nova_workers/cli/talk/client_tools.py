"""Tools of `nova send` that run on this machine: each call is a command, which gets the arguments on stdin."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field, StringConstraints, TypeAdapter, ValidationError

from nova_workers.base.child_process import Bounds, run_child
from nova_workers.base.errors import InvalidInput, NovaError
from nova_workers.base.stopping import stop_tasks
from nova_workers.base.validation import place_of, problem_of
from nova_workers.cli.command import Session
from nova_workers.contracts.events import Waiting
from nova_workers.contracts.http.wire import RunView
from nova_workers.contracts.run_options import ClientTool
from nova_workers.contracts.waits import MAX_WAIT_S, CallClientTool, ToolResult, ToolResults

_OUTPUT_BYTES: Final = 100_000
"""How much of a command's output is the result."""
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
        give = self.session.client.runs.give_results
        result = ToolResult(tool_call_id=call_id, content=text, is_error=failed)
        try:
            try:
                await give(run_id, ToolResults(results=[result]))
            except InvalidInput as error:
                refused = result.model_copy(update={"content": error.message, "is_error": True})
                await give(run_id, ToolResults(results=[refused]))
        except NovaError as error:
            # Another program was first, the time was over, the run was canceled, or the API does not answer.
            self.session.out.note(f"The result of {command[0]} was not taken: {error.message}", "yellow")


async def _run(command: list[str], given: bytes) -> tuple[str, bool]:
    """Run a command; return what it wrote, and whether it failed."""
    bounds = Bounds(MAX_WAIT_S, _OUTPUT_BYTES)
    try:
        done = await run_child(command, bounds, env=os.environ, given=given, with_errors=True)
    except OSError as error:
        return f"{command[0]} could not be started: {error.strerror}.", True
    text = done.text().strip()
    return (text, False) if done.exit_code == 0 else (f"{command[0]} failed (status {done.exit_code}): {text}", True)
