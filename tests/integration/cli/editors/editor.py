"""An editor for tests: the client of the protocol's own SDK, on files in a directory and on real commands."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

from acp import RequestError
from acp.schema import (
    AllowedOutcome,
    CreateTerminalResponse,
    DeniedOutcome,
    KillTerminalResponse,
    PermissionOption,
    ReadTextFileResponse,
    ReleaseTerminalResponse,
    RequestPermissionResponse,
    TerminalExitStatus,
    TerminalOutputResponse,
    ToolCallUpdate,
    WaitForTerminalExitResponse,
    WriteTextFileResponse,
)


class TestEditor:
    """What an editor does for its agent.

    Attributes:
        updates: All updates, in order, by session.
        asked: The titles of the permissions that were asked for.
        answers: The ids of options that the person chooses, in order; None closes the dialog. Without one, they think.
    """

    __test__ = False

    def __init__(self) -> None:
        self.updates: list[tuple[str, Any]] = []
        self.asked: list[tuple[str | None, tuple[str, ...]]] = []
        self.answers: list[str | None] = []
        self._commands: dict[str, subprocess.CompletedProcess[str]] = {}

    def on_connect(self, conn: Any) -> None:
        """Take the connection; nothing is needed of it."""

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        """Keep an update."""
        self.updates.append((session_id, update))

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **_: Any
    ) -> RequestPermissionResponse:
        """Answer as the person does."""
        self.asked.append((tool_call.title, tuple(option.option_id for option in options)))
        chosen = self.answers.pop(0) if self.answers else await asyncio.Future[str]()
        if chosen is not None:
            return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen))
        return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))

    async def read_text_file(
        self, session_id: str, path: str, line: int | None = None, limit: int | None = None, **_: Any
    ) -> ReadTextFileResponse:
        """Read lines of a file."""
        try:
            lines = (await asyncio.to_thread(Path(path).read_text)).splitlines(keepends=True)
        except OSError as error:
            raise RequestError.resource_not_found(path) from error
        first = (line or 1) - 1
        return ReadTextFileResponse(content="".join(lines[first : None if limit is None else first + limit]))

    async def write_text_file(self, session_id: str, path: str, content: str, **_: Any) -> WriteTextFileResponse:
        """Write a file."""
        await asyncio.to_thread(Path(path).write_text, content)
        return WriteTextFileResponse()

    async def create_terminal(
        self, session_id: str, command: str, args: list[str] | None = None, cwd: str | None = None, **_: Any
    ) -> CreateTerminalResponse:
        """Run a command to its end."""
        name = f"term_{len(self._commands)}"
        self._commands[name] = await asyncio.to_thread(
            subprocess.run, [command, *(args or [])], cwd=cwd, text=True, capture_output=True, check=False
        )
        return CreateTerminalResponse(terminal_id=name)

    async def terminal_output(self, session_id: str, terminal_id: str, **_: Any) -> TerminalOutputResponse:
        """Return what the command wrote."""
        done = self._commands[terminal_id]
        status = TerminalExitStatus(exit_code=done.returncode)
        return TerminalOutputResponse(output=done.stdout + done.stderr, truncated=False, exit_status=status)

    async def wait_for_terminal_exit(self, session_id: str, terminal_id: str, **_: Any) -> WaitForTerminalExitResponse:
        """Return how the command ended."""
        return WaitForTerminalExitResponse(exit_code=self._commands[terminal_id].returncode)

    async def kill_terminal(self, session_id: str, terminal_id: str, **_: Any) -> KillTerminalResponse:
        """Do nothing: the command has ended."""
        return KillTerminalResponse()

    async def release_terminal(self, session_id: str, terminal_id: str, **_: Any) -> ReleaseTerminalResponse:
        """Forget the command."""
        return ReleaseTerminalResponse()

    def of(self, session_id: str, kind: str) -> list[Any]:
        """Return the updates of a kind in a session."""
        return [update for session, update in self.updates if session == session_id and update.session_update == kind]

    def text(self, session_id: str) -> str:
        """Return what the agent said in a session."""
        return "".join(update.content.text for update in self.of(session_id, "agent_message_chunk"))
