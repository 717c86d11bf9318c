"""The editor's files and terminal as tools of a run, which wait for the person as the session's mode demands."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

from acp.exceptions import RequestError
from acp.helpers import tool_diff_content, tool_terminal_ref
from acp.schema import PermissionOption, SessionMode, ToolCallProgress, ToolCallUpdate
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nova_workers.base.true_numbers import TrueNumbers
from nova_workers.base.validation import place_of, problem_of
from nova_workers.cli.acp.editor import Editor
from nova_workers.cli.acp.mcp_servers import ToolServers
from nova_workers.cli.acp.updates import locations_of, title_of
from nova_workers.contracts.run_options import ClientTool

READ, WRITE, EDIT, RUN = "editor_read_file", "editor_write_file", "editor_edit_file", "editor_run_command"

MODES: Final = (
    SessionMode(id="ask", name="Ask", description="Asks before it changes a file or runs a command."),
    SessionMode(id="edit", name="Edit", description="Changes files of the project; asks before it runs a command."),
    SessionMode(id="auto", name="Auto", description="Changes files of the project and runs commands."),
    SessionMode(id="read", name="Read", description="Reads; changes nothing, and runs no command."),
)
"""What a session may do on the editor's machine; the first is the default."""

_OUTPUT_BYTES: Final = 100_000
_TIMEOUT_S: Final = 600.0

_Path = Annotated[str, Field(min_length=1, max_length=4_096, description="Absolute, or from the project's directory.")]


class _Input(TrueNumbers):
    model_config = ConfigDict(extra="forbid")


class _ReadFile(_Input):
    path: _Path
    line: Annotated[int, Field(ge=1, description="The first line to read.")] | None = None
    limit: Annotated[int, Field(ge=1, description="How many lines to read.")] | None = None


class _WriteFile(_Input):
    path: _Path
    content: Annotated[str, Field(description="The whole file.")]


class _EditFile(_Input):
    path: _Path
    old_text: Annotated[str, Field(min_length=1, description="Text that is in the file once.")]
    new_text: Annotated[str, Field(description="What replaces it.")]


class _RunCommand(_Input):
    command: Annotated[str, Field(min_length=1, max_length=100_000, description="A command line for the shell.")]
    cwd: Annotated[str, Field(max_length=4_096, description="Leave it out for the project's directory.")] | None = None
    timeout_s: Annotated[float, Field(gt=0, le=7_200, description="It is ended after this time.")] = _TIMEOUT_S


_FORMS: Final[Mapping[str, tuple[type[BaseModel], str]]] = {
    READ: (_ReadFile, "Read a text file of the person's project as their editor has it, with unsaved changes."),
    WRITE: (_WriteFile, "Write a file of the person's project, or replace it."),
    EDIT: (_EditFile, "Replace one piece of text in a file of the person's project."),
    RUN: (_RunCommand, "Run a command in a terminal of the person's editor, and return what it prints."),
}

_OPTIONS: Final = (
    PermissionOption(option_id="once", name="Allow", kind="allow_once"),
    PermissionOption(option_id="always", name="Allow in this session", kind="allow_always"),
    PermissionOption(option_id="no", name="Reject", kind="reject_once"),
)


class _Failed(Exception):
    """A call cannot be executed, or the person rejected it; the text is for the model."""


@dataclass
class EditorTools:
    """What a run of one session can do on the editor's machine.

    Attributes:
        directories: The project's; a path outside of them is never used without asking.
        drawn: Takes the id of a call whose content is shown as a change or a terminal.
    """

    editor: Editor
    session_id: str
    directories: tuple[Path, ...]
    servers: ToolServers
    drawn: Callable[[str], None]
    mode: str = MODES[0].id
    _allowed: set[str] = field(default_factory=set[str])
    """Kinds of calls that the person allowed for this session."""

    def offered(self) -> list[ClientTool]:
        """Return the tools as a run takes them: those that the editor has, and that the mode allows."""
        from_servers = [tool for tool in self.servers.tools if self._may_call(tool.name)]
        return [*map(_tool, self._own_names()), *from_servers]

    def _may_call(self, name: str) -> bool:
        """Return whether the mode allows a tool of a server: in `read` only one that says it changes nothing."""
        return self.mode != "read" or name in self.servers.reading

    def _own_names(self) -> list[str]:
        changes = self.mode != "read"
        there = {
            READ: self.editor.reads,
            WRITE: self.editor.writes and changes,
            EDIT: self.editor.reads and self.editor.writes and changes,
            RUN: self.editor.has_terminal and changes,
        }
        return [name for name, is_there in there.items() if is_there]

    async def call(self, call_id: str, name: str, params: dict[str, Any]) -> tuple[str, bool]:
        """Execute a call; return the text of its result, and whether it failed."""
        try:
            if self.servers.has(name) and self._may_call(name):
                # Their settings are the person's own: what asks there does so in the editor's settings.
                if self.mode != "auto":
                    await self._permitted(call_id, name, params)
                return await self.servers.call(name, params)
            if name not in self._own_names():
                # Also one that the run was offered before the person changed the mode.
                raise _Failed(f"{name!r} is no tool of this editor in the mode {self.mode!r} of the session.")
            return await self._own(call_id, name, _given(name, params)), False
        except _Failed as error:
            return str(error), True
        except RequestError as error:
            return f"The editor refused it: {error}", True

    async def _own(self, call_id: str, name: str, given: BaseModel) -> str:
        match given:
            case _ReadFile():
                path = self._path(given.path)
                if not self._is_inside(path):
                    await self._permitted(call_id, name, {"path": str(path)}, is_inside=False)
                return await self.editor.read(self.session_id, str(path), given.line, given.limit)
            case _WriteFile():
                path = self._path(given.path)
                return await self._write(call_id, name, path, await self._before(path), given.content)
            case _EditFile():
                path = self._path(given.path)
                before = await self.editor.read(self.session_id, str(path))
                if (times := before.count(given.old_text)) != 1:
                    raise _Failed(f"old_text is in {path} {times} times; give a piece that is there once.")
                return await self._write(call_id, name, path, before, before.replace(given.old_text, given.new_text))
            case _RunCommand():
                return await self._run(call_id, name, given)
            case _:
                raise AssertionError(name)

    async def _write(self, call_id: str, name: str, path: Path, before: str | None, after: str) -> str:
        change = tool_diff_content(str(path), after, before)
        self.drawn(call_id)
        params = {"path": str(path)}
        shown = ToolCallProgress(
            session_update="tool_call_update",
            tool_call_id=call_id,
            title=title_of(name, params),
            locations=locations_of(params),
            content=[change],
        )
        await self.editor.show(self.session_id, shown)
        is_inside = self._is_inside(path)
        if self.mode == "ask" or not is_inside:
            await self._permitted(call_id, name, params, is_inside=is_inside, change=shown)
        await self.editor.write(self.session_id, str(path), after)
        return f"{path} was written."

    async def _before(self, path: Path) -> str | None:
        """Return the text of a file that is to be replaced; None if there is none that can be read."""
        if not self.editor.reads:
            return None
        try:
            return await self.editor.read(self.session_id, str(path))
        except RequestError:
            return None

    async def _run(self, call_id: str, name: str, given: _RunCommand) -> str:
        cwd = self._path(given.cwd or "")
        is_inside = self._is_inside(cwd)
        if self.mode != "auto" or not is_inside:
            params = {"command": given.command, "cwd": str(cwd)}
            await self._permitted(call_id, name, params, is_inside=is_inside)
        shell, option = ("cmd", "/c") if os.name == "nt" else ("/bin/sh", "-c")
        command = self.editor.terminal(
            self.session_id, shell, [option, given.command], cwd=str(cwd), output_bytes=_OUTPUT_BYTES
        )
        async with command as terminal:
            self.drawn(call_id)
            shown = ToolCallProgress(
                session_update="tool_call_update",
                tool_call_id=call_id,
                title=title_of(name, {"command": given.command}),
                content=[tool_terminal_ref(terminal.id)],
            )
            await self.editor.show(self.session_id, shown)
            try:
                code = await asyncio.wait_for(terminal.exit_code(), given.timeout_s)
            except TimeoutError:
                await terminal.kill()
                raise _Failed(f"Ended after {given.timeout_s:g} s:\n{await terminal.output()}") from None
            output = await terminal.output()
        if code != 0:
            raise _Failed(f"Exit status {'of a signal' if code is None else code}:\n{output}")
        return output or "(no output)"

    async def _permitted(
        self,
        call_id: str,
        name: str,
        params: dict[str, Any],
        *,
        is_inside: bool = True,
        change: ToolCallProgress | None = None,
    ) -> None:
        """Return when the person allows a call.

        Raises:
            _Failed: They rejected it.
        """
        kind = name if is_inside else f"{name} outside of the project"
        if kind in self._allowed and self.mode != "read":
            return
        shown = ToolCallUpdate(
            tool_call_id=call_id,
            title=title_of(name, params),
            raw_input=params,
            locations=locations_of(params),
            content=None if change is None else change.content,
        )
        answer = await self.editor.choose(self.session_id, shown, list(_OPTIONS))
        if answer == "always":
            self._allowed.add(kind)
        elif answer != "once":
            raise _Failed("The person rejected this call.")

    def _path(self, given: str) -> Path:
        return Path(os.path.normpath(self.directories[0] / given))

    def _is_inside(self, path: Path) -> bool:
        real = path.resolve()
        return any(real.is_relative_to(directory.resolve()) for directory in self.directories)


def _tool(name: str) -> ClientTool:
    form, description = _FORMS[name]
    schema = form.model_json_schema()
    schema.pop("title", None)
    return ClientTool(name=name, description=description, input_schema=schema)


def _given(name: str, params: dict[str, Any]) -> BaseModel:
    form = _FORMS[name][0]
    try:
        return form.model_validate(params)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise _Failed(f"{place_of(first) or 'arguments'}: {problem_of(first, form)}.") from error
