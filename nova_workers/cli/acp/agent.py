"""The agent's side of the protocol: its methods, each of which is a call or two of the fleet's API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from acp.connection import Connection
from acp.exceptions import RequestError
from acp.helpers import update_available_commands
from acp.meta import AGENT_METHODS, PROTOCOL_VERSION
from acp.router import MessageRouter, Route
from acp.schema import (
    AgentCapabilities,
    AvailableCommand,
    AvailableCommandInput,
    CancelNotification,
    CloseSessionRequest,
    CloseSessionResponse,
    CurrentModeUpdate,
    DeleteSessionRequest,
    DeleteSessionResponse,
    ForkSessionRequest,
    ForkSessionResponse,
    Implementation,
    InitializeRequest,
    InitializeResponse,
    ListSessionsRequest,
    ListSessionsResponse,
    LoadSessionRequest,
    LoadSessionResponse,
    McpCapabilities,
    NewSessionRequest,
    NewSessionResponse,
    PromptCapabilities,
    PromptRequest,
    PromptResponse,
    ResumeSessionRequest,
    ResumeSessionResponse,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionDeleteCapabilities,
    SessionForkCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SessionModeState,
    SessionResumeCapabilities,
    SetSessionConfigOptionResponse,
    SetSessionConfigOptionSelectRequest,
    SetSessionModeRequest,
    SetSessionModeResponse,
    UnstructuredCommandInput,
)
from pydantic import BaseModel, ValidationError

from nova_workers.base.errors import (
    Forbidden,
    Gone,
    InvalidInput,
    NotFound,
    NovaError,
    Unauthenticated,
)
from nova_workers.base.release import release
from nova_workers.base.stopping import stop_tasks
from nova_workers.base.validation import place_of, problem_of
from nova_workers.cli.acp.editor import Editor, refusal
from nova_workers.cli.acp.mcp_servers import ToolServers
from nova_workers.cli.acp.prompts import instructions_of, message_of, text_of_prompt
from nova_workers.cli.acp.session import EditorSession
from nova_workers.cli.acp.tools import MODES, EditorTools
from nova_workers.cli.acp.updates import StoredUpdates
from nova_workers.cli.acp.waits import Waits
from nova_workers.client.client import NovaClient
from nova_workers.contracts.http.wire import RunView, ThreadCreate, ThreadFork, ThreadView, TurnView
from nova_workers.contracts.run_options import RunOptions

_CWD: Final = "cwd"
"""Where the metadata of a thread has the directory of its session, if an editor made it."""
_AGENTS_MODEL: Final = "default"
_ALIASES: Final = ("haiku", "sonnet", "opus")
_WEB_TOOLS: Final = ("WebSearch", "WebFetch")
"""The native tools that a run keeps: the others are for the worker's disk, which the editor does not share."""
_OPEN: Final = ("running", "waiting", "queued")
_MOST_OPEN: Final = 200
_CODES: Final = (
    ((Unauthenticated, Forbidden), -32000),
    ((NotFound, Gone), -32002),
    ((InvalidInput,), -32602),
)

R = TypeVar("R", bound=BaseModel)
_Opening = NewSessionRequest | LoadSessionRequest | ResumeSessionRequest | ForkSessionRequest


class FleetAgent:
    """An agent of the fleet, for one editor."""

    def __init__(
        self, client: NovaClient, agent_id: str, *, models: Sequence[str] = (), shares_disk: bool = False
    ) -> None:
        """Take the fleet and its agent.

        Args:
            client: For the fleet.
            agent_id: The agent of new sessions.
            models: Models to offer beside the usual aliases.
            shares_disk: Whether workers see the editor's files under the same paths.
        """
        self._client = client
        self._agent_id = agent_id
        self._models = dict.fromkeys((_AGENTS_MODEL, *_ALIASES, *models))
        self._shares_disk = shares_disk
        self._editor_name: str | None = None
        self._sessions: dict[str, EditorSession] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._editor: Editor | None = None
        self.router = MessageRouter()
        self._serve("initialize", InitializeRequest, self._initialize)
        self._serve("session_new", NewSessionRequest, self._new)
        self._serve("session_load", LoadSessionRequest, self._load)
        self._serve("session_resume", ResumeSessionRequest, self._resume)
        self._serve("session_fork", ForkSessionRequest, self._fork)
        self._serve("session_list", ListSessionsRequest, self._list)
        self._serve("session_close", CloseSessionRequest, self._close)
        self._serve("session_delete", DeleteSessionRequest, self._delete)
        self._serve("session_prompt", PromptRequest, self._prompt)
        self._serve("session_set_mode", SetSessionModeRequest, self._set_mode)
        self._serve("session_set_config_option", SetSessionConfigOptionSelectRequest, self._set_option)
        self._serve("session_cancel", CancelNotification, self._cancel, kind="notification")

    def _serve(
        self,
        key: str,
        model: type[R],
        handler: Callable[[R], Awaitable[BaseModel | None]],
        *,
        kind: Literal["request", "notification"] = "request",
    ) -> None:
        self.router.add_route(Route(AGENT_METHODS[key], _handling(model, handler), kind))

    def connect(self, connection: Connection) -> None:
        """Take the connection to the editor, before its first message."""
        self._editor = Editor(connection)

    async def close(self) -> None:
        """End what this process does for its sessions. Their runs go on in the fleet."""
        await stop_tasks(self._tasks)
        for session in self._sessions.values():
            await session.leave()

    @property
    def editor(self) -> Editor:
        """The editor."""
        if self._editor is None:
            raise RuntimeError("no editor is connected")
        return self._editor

    async def _initialize(self, request: InitializeRequest) -> InitializeResponse:
        if request.client_capabilities is not None:
            self.editor.capabilities = request.client_capabilities
        if request.client_info is not None:
            self._editor_name = request.client_info.title or request.client_info.name
        spec = (await self._client.agents.get(self._agent_id)).spec
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_info=Implementation(name="nova-workers", title=spec.name, version=release()),
            auth_methods=[],
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(image=True, audio=False, embedded_context=True),
                mcp_capabilities=McpCapabilities(http=True, sse=False),
                session_capabilities=SessionCapabilities(
                    list=SessionListCapabilities(),
                    resume=SessionResumeCapabilities(),
                    close=SessionCloseCapabilities(),
                    delete=SessionDeleteCapabilities(),
                    fork=SessionForkCapabilities(),
                ),
            ),
        )

    async def _new(self, request: NewSessionRequest) -> NewSessionResponse:
        _check_cwd(request.cwd)
        thread = await self._client.threads.create(ThreadCreate(agent_id=self._agent_id, metadata={_CWD: request.cwd}))
        async with self._opening(thread, request) as session:
            pass
        return NewSessionResponse(
            session_id=session.id, modes=_modes(session), config_options=[self._model_option(session)]
        )

    async def _load(self, request: LoadSessionRequest) -> LoadSessionResponse:
        _check_cwd(request.cwd)
        async with self._opening(await self._client.threads.get(request.session_id), request) as session:
            active = await self._open_run(session)
            # The turn that goes on is shown as it goes on, from its beginning.
            newest = None if active is None else await self._newest_turn(session)
            depth = newest.depth if newest is not None and active is not None and newest.run_id == active.id else None
            if depth is None or depth > 0:
                await session.replay(None if depth is None else depth - 1)
            if active is not None:
                await session.show_prompt(active)
        if active is not None:
            self._after_answer(session.take_up(active.id))
        return LoadSessionResponse(modes=_modes(session), config_options=[self._model_option(session)])

    async def _resume(self, request: ResumeSessionRequest) -> ResumeSessionResponse:
        _check_cwd(request.cwd)
        async with self._opening(await self._client.threads.get(request.session_id), request) as session:
            newest, active = await self._newest_turn(session), await self._open_run(session)
            session.from_depth = None if newest is None else newest.depth + 1
            steps = 0 if active is None else (await self._client.runs.timeline(active.id, limit=1)).step_count
        if active is not None:
            self._after_answer(session.take_up(active.id, shown_steps=steps))
        return ResumeSessionResponse(modes=_modes(session), config_options=[self._model_option(session)])

    async def _fork(self, request: ForkSessionRequest) -> ForkSessionResponse:
        _check_cwd(request.cwd)
        thread = await self._client.threads.fork(request.session_id, ThreadFork())
        async with self._opening(thread, request) as session:
            newest = await self._newest_turn(session)
            session.from_depth = None if newest is None else newest.depth + 1
        return ForkSessionResponse(
            session_id=session.id, modes=_modes(session), config_options=[self._model_option(session)]
        )

    async def _list(self, request: ListSessionsRequest) -> ListSessionsResponse:
        cursor = request.cursor
        while True:
            page = await self._client.threads.list(agent_id=self._agent_id, cursor=cursor)
            found = [
                _info(thread)
                for thread in page.items
                if request.cwd is None or thread.metadata.get(_CWD) == request.cwd
            ]
            cursor = page.next_cursor
            if found or cursor is None:
                return ListSessionsResponse(sessions=found, next_cursor=cursor)

    async def _close(self, request: CloseSessionRequest) -> CloseSessionResponse:
        session = self._sessions.pop(request.session_id, None)
        if session is not None:
            await session.close()
        return CloseSessionResponse()

    async def _delete(self, request: DeleteSessionRequest) -> DeleteSessionResponse:
        # It cancels what runs.
        await self._client.threads.delete(request.session_id)
        session = self._sessions.pop(request.session_id, None)
        if session is not None:
            await session.leave()
        return DeleteSessionResponse()

    async def _prompt(self, request: PromptRequest) -> PromptResponse:
        session = self._session(request.session_id)
        tools = session.tools.offered()
        cwd = str(session.tools.directories[0])
        options = RunOptions(
            client_tools=tuple(tools),
            instructions=instructions_of(self._editor_name, cwd, has_tools=bool(tools), shares_disk=self._shares_disk),
            native_tools=None if self._shares_disk else _WEB_TOOLS,
        )
        message = message_of(request.prompt, session.skills)
        return PromptResponse(stop_reason=await session.prompt(message, text_of_prompt(request.prompt), options))

    async def _cancel(self, request: CancelNotification) -> None:
        session = self._sessions.get(request.session_id)
        if session is not None:
            await session.cancel()

    async def _set_mode(self, request: SetSessionModeRequest) -> SetSessionModeResponse:
        session = self._session(request.session_id)
        if request.mode_id not in {mode.id for mode in MODES}:
            known = ", ".join(mode.id for mode in MODES)
            raise refusal(f"{request.mode_id!r} is no mode; these are {known}.", field="modeId")
        session.tools.mode = request.mode_id
        await self.editor.show(
            session.id, CurrentModeUpdate(session_update="current_mode_update", current_mode_id=request.mode_id)
        )
        return SetSessionModeResponse()

    async def _set_option(self, request: SetSessionConfigOptionSelectRequest) -> SetSessionConfigOptionResponse:
        session = self._session(request.session_id)
        if request.config_id != "model":
            raise refusal(f"{request.config_id!r} is no option; there is 'model'.", field="configId")
        if request.value not in self._models:
            raise refusal(f"{request.value!r} is none of {', '.join(self._models)}.", field="value")
        session.model = None if request.value == _AGENTS_MODEL else request.value
        return SetSessionConfigOptionResponse(config_options=[self._model_option(session)])

    def _session(self, session_id: str) -> EditorSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise refusal(f"The session {session_id!r} is not open; load or resume it.", -32002, field="sessionId")
        return session

    @asynccontextmanager
    async def _opening(self, thread: ThreadView, request: _Opening) -> AsyncGenerator[EditorSession]:
        """Yield a session that the editor can use after the block. If it fails, nothing of the session stays.

        One that is open for the thread is left before the block, or after it if the editor opened it meanwhile.
        """
        await self._leave(thread.id)
        stored, servers = StoredUpdates(), ToolServers()
        directories = tuple(Path(each) for each in (request.cwd, *(request.additional_directories or ())))
        tools = EditorTools(self.editor, thread.id, directories, servers, stored.drawn.add)
        waits = Waits(thread.id, self._client, self.editor, tools)
        session = EditorSession(thread.id, self._client, self.editor, tools, servers, stored, waits, title=thread.title)
        try:
            await servers.start(request.mcp_servers or (), request.cwd)
            yield session
            await self._leave(thread.id)
        except BaseException:
            await session.leave()
            raise
        self._sessions[thread.id] = session
        self._after_answer(self._introduce(session, thread.agent_id))

    async def _leave(self, session_id: str) -> None:
        while (session := self._sessions.pop(session_id, None)) is not None:
            await session.leave()

    async def _open_run(self, session: EditorSession) -> RunView | None:
        """Return the run that goes on in a session, or goes on next: one that lost its worker is queued."""
        found = (await self._client.runs.list(thread_id=session.id, status=_OPEN, limit=_MOST_OPEN)).items
        return min(found, key=lambda run: -1 if run.position is None else run.position, default=None)

    async def _newest_turn(self, session: EditorSession) -> TurnView | None:
        turns = (await self._client.threads.turns(session.id, limit=1)).items
        return turns[0] if turns else None

    async def _introduce(self, session: EditorSession, agent_id: str) -> None:
        """Name the agent's skills as commands, and the tool servers that did not start."""
        for failure in session.servers.failures:
            await session.note(f"A tool server cannot be used: {failure}\n")
        names = set((await self._client.agents.get(agent_id)).spec.skills)
        if not names:
            return
        try:
            found = (await self._client.skills.list(limit=200)).items
        except Forbidden:
            return
        session.skills = {skill.name: skill.description for skill in found if skill.name in names}
        commands = [
            AvailableCommand(
                name=name,
                description=description,
                input=AvailableCommandInput(UnstructuredCommandInput(hint="what to do with it")),
            )
            for name, description in session.skills.items()
        ]
        await self.editor.show(session.id, update_available_commands(commands))

    def _after_answer(self, work: Any) -> None:
        """Do something once the present request is answered: an editor drops updates of sessions it does not know."""

        async def later() -> None:
            await asyncio.sleep(0)
            try:
                await work
            except (NovaError, RequestError, ConnectionError):
                # It is shown with the next prompt, or the editor has left.
                pass

        task = asyncio.get_running_loop().create_task(later())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _model_option(self, session: EditorSession) -> SessionConfigOptionSelect:
        return SessionConfigOptionSelect(
            type="select",
            id="model",
            name="Model",
            category="model",
            current_value=session.model or _AGENTS_MODEL,
            options=[
                SessionConfigSelectOption(value=name, name="The agent's" if name == _AGENTS_MODEL else name)
                for name in self._models
            ],
        )


def _handling(model: type[R], handler: Callable[[R], Awaitable[BaseModel | None]]) -> Callable[[Any], Awaitable[Any]]:
    """Return a handler of raw parameters, whose errors are those of the protocol."""

    async def handle(params: Any) -> Any:
        try:
            request = model.model_validate(params if isinstance(params, dict) else {})
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise refusal(f"{place_of(first) or 'params'}: {problem_of(first)}.", field=place_of(first)) from error
        try:
            return await handler(request)
        except NovaError as error:
            code = next((code for kinds, code in _CODES if isinstance(error, kinds)), -32603)
            raise RequestError(code, error.message, {"code": error.code, **error.fields}) from error

    return handle


def _check_cwd(cwd: str) -> None:
    if not Path(cwd).is_absolute():
        raise refusal(f"cwd {cwd!r} is not absolute.", field="cwd")


def _modes(session: EditorSession) -> SessionModeState:
    return SessionModeState(current_mode_id=session.tools.mode, available_modes=list(MODES))


def _info(thread: ThreadView) -> SessionInfo:
    return SessionInfo(
        session_id=thread.id,
        cwd=str(thread.metadata.get(_CWD, "/")),
        title=thread.title or thread.opening,
        updated_at=thread.updated_at.isoformat(),
    )
