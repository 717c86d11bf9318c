"""The editor at the other end: what it is asked for, and what it is sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Protocol, TypeVar

from acp.connection import Connection
from acp.exceptions import RequestError
from acp.meta import CLIENT_METHODS
from acp.schema import (
    AllowedOutcome,
    ClientCapabilities,
    CreateFormSessionElicitationRequest,
    CreateTerminalRequest,
    CreateTerminalResponse,
    KillTerminalRequest,
    PermissionOption,
    ReadTextFileRequest,
    ReadTextFileResponse,
    ReleaseTerminalRequest,
    RequestPermissionRequest,
    RequestPermissionResponse,
    SessionNotification,
    TerminalOutputRequest,
    TerminalOutputResponse,
    ToolCallUpdate,
    WaitForTerminalExitRequest,
    WaitForTerminalExitResponse,
    WriteTextFileRequest,
)
from acp.utils import notify_model, request_model, serialize_params
from pydantic import BaseModel

M = TypeVar("M", bound=BaseModel)

_RELEASED_S: Final = 2.0
"""Longest wait for an editor to release a terminal. The call that used it has its result, or is canceled."""


class Update(Protocol):
    """A change of a session that the editor shows: one of the protocol's updates."""

    session_update: Any


class Terminal:
    """A command that runs in a terminal of the editor."""

    def __init__(self, editor: Editor, session_id: str, terminal_id: str) -> None:
        self._editor = editor
        self._session_id = session_id
        self.id = terminal_id

    async def exit_code(self) -> int | None:
        """Wait for the end of the command; None if a signal ended it."""
        request = WaitForTerminalExitRequest(session_id=self._session_id, terminal_id=self.id)
        return (await self._editor.ask("terminal_wait_for_exit", request, WaitForTerminalExitResponse)).exit_code

    async def output(self) -> str:
        """Return the output of the command so far, up to its limit."""
        request = TerminalOutputRequest(session_id=self._session_id, terminal_id=self.id)
        return (await self._editor.ask("terminal_output", request, TerminalOutputResponse)).output

    async def kill(self) -> None:
        """End the command; its output stays."""
        await self._editor.tell("terminal_kill", KillTerminalRequest(session_id=self._session_id, terminal_id=self.id))


class Editor:
    """Requests and notifications to the editor.

    Attributes:
        capabilities: What the editor can do; nothing before it has said so.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.capabilities = ClientCapabilities()
        self._releasing: set[asyncio.Task[None]] = set()
        """They end with the connection."""

    @property
    def reads(self) -> bool:
        """Whether it reads files, with changes that are not saved."""
        return bool(self.capabilities.fs and self.capabilities.fs.read_text_file)

    @property
    def writes(self) -> bool:
        """Whether it writes files."""
        return bool(self.capabilities.fs and self.capabilities.fs.write_text_file)

    @property
    def has_terminal(self) -> bool:
        """Whether it runs commands."""
        return bool(self.capabilities.terminal)

    @property
    def has_forms(self) -> bool:
        """Whether it shows forms."""
        return bool(self.capabilities.elicitation and self.capabilities.elicitation.form is not None)

    async def show(self, session_id: str, update: Update) -> None:
        """Send an update of a session."""
        notification = SessionNotification.model_construct(session_id=session_id, update=update)
        await notify_model(self._connection, CLIENT_METHODS["session_update"], notification)

    async def choose(self, session_id: str, call: ToolCallUpdate, options: list[PermissionOption]) -> str | None:
        """Return the id of the option that the person chooses; None if the dialog was closed, or the turn canceled."""
        request = RequestPermissionRequest(session_id=session_id, tool_call=call, options=options)
        answer = await self.ask("session_request_permission", request, RequestPermissionResponse)
        return answer.outcome.option_id if isinstance(answer.outcome, AllowedOutcome) else None

    async def fill_in(self, form: CreateFormSessionElicitationRequest) -> dict[str, Any] | None:
        """Return the values that the person filled in; None if they declined."""
        answer = await self._connection.send_request(CLIENT_METHODS["elicitation_create"], serialize_params(form))
        return (answer.get("content") or {}) if isinstance(answer, dict) and answer.get("action") == "accept" else None

    async def read(self, session_id: str, path: str, line: int | None = None, limit: int | None = None) -> str:
        """Return a file's text as the editor has it: lines from `line` on, which counts from 1, and `limit` of them."""
        request = ReadTextFileRequest(session_id=session_id, path=path, line=line, limit=limit)
        return (await self.ask("fs_read_text_file", request, ReadTextFileResponse)).content

    async def write(self, session_id: str, path: str, content: str) -> None:
        """Write a whole file; the editor creates it if it does not exist."""
        await self.tell("fs_write_text_file", WriteTextFileRequest(session_id=session_id, path=path, content=content))

    @asynccontextmanager
    async def terminal(
        self, session_id: str, command: str, args: list[str], *, cwd: str, output_bytes: int
    ) -> AsyncGenerator[Terminal]:
        """Run a command within the block; at its end the command is ended too."""
        request = CreateTerminalRequest(
            session_id=session_id, command=command, args=args, cwd=cwd, output_byte_limit=output_bytes
        )

        async def release(made: CreateTerminalResponse) -> None:
            released = ReleaseTerminalRequest(session_id=session_id, terminal_id=made.terminal_id)
            with suppress(RequestError, TimeoutError):
                async with asyncio.timeout(_RELEASED_S):
                    await self.tell("terminal_release", released)

        made = await self._opened(self.ask("terminal_create", request, CreateTerminalResponse), release)
        try:
            yield Terminal(self, session_id, made.terminal_id)
        finally:
            await release(made)

    async def _opened(self, asking: Coroutine[Any, Any, M], release: Callable[[M], Awaitable[None]]) -> M:
        """Return the answer to a request that opens something. If the call is canceled, that is released."""
        opening = asyncio.create_task(asking)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            self._keep(asyncio.create_task(_released(opening, release)))
            raise

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)

    async def ask(self, method: str, request: BaseModel, answer: type[M]) -> M:
        """Send a request by its key in `CLIENT_METHODS`, and return the answer.

        Raises:
            RequestError: The editor refused it, or its answer has another form.
        """
        return await request_model(self._connection, CLIENT_METHODS[method], request, answer)

    async def tell(self, method: str, request: BaseModel) -> None:
        """Send a request whose answer says nothing but that it was done.

        Raises:
            RequestError: The editor refused it.
        """
        await self._connection.send_request(CLIENT_METHODS[method], serialize_params(request))


async def _released(opening: asyncio.Task[M], release: Callable[[M], Awaitable[None]]) -> None:
    """Release what a request opens whose caller is gone."""
    with suppress(RequestError, ConnectionError):
        await release(await opening)


def refusal(message: str, code: int = -32602, **data: object) -> RequestError:
    """Return an error of the protocol, by default for wrong parameters."""
    return RequestError(code, message, data or None)
