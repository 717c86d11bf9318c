"""Starts a turn's conversation from a matching stored session, or else from the ledger's messages."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from nova_workers.base.errors import EngineFailure
from nova_workers.contracts.content import ContentBlock, JsonObject, Message, text_block
from nova_workers.contracts.engine import EngineOptions
from nova_workers.contracts.sessions import NewSession
from nova_workers.engines.claude_agent.conversation import Conversation, Ended
from nova_workers.engines.claude_agent.failures import failure_of, program_ended
from nova_workers.engines.claude_agent.home import ClaudeHome
from nova_workers.engines.claude_agent.launching import Launcher, new_session_id
from nova_workers.engines.claude_agent.names import own_name
from nova_workers.engines.claude_agent.transcript import entries_of, fingerprint, is_entry, kept, rebound
from nova_workers.engines.programs.process import Launch
from nova_workers.engines.resilience import Route

_log = structlog.get_logger(__name__)

_CONTINUE = (text_block("Continue from where you left off."),)
"""The program's own prompt for continuing an interrupted turn."""


@dataclass(frozen=True, slots=True)
class _Beginning:
    """The conversation with which the program starts.

    Attributes:
        parent_id: The stored session that it continues.
        base: That session's entries.
        past: Messages that are added to its transcript after them.
        prompt: The message to it; None if it is the model's turn at the end of the transcript.
    """

    parent_id: str | None
    base: tuple[JsonObject, ...]
    past: tuple[Message, ...]
    prompt: tuple[ContentBlock, ...] | None


class SessionOpener:
    """Opens the conversation of one turn, and provides the session to store afterwards."""

    def __init__(
        self,
        options: EngineOptions,
        launcher: Launcher,
        home: ClaudeHome,
        converse: Callable[[Launch], Conversation],
        session_id: str | None,
    ) -> None:
        self._options = options
        self._launcher = launcher
        self._home = home
        self._converse = converse
        self._resumed_id = session_id
        self._session_id = ""
        self._beginning: _Beginning | None = None
        self._added: list[JsonObject] = []
        self._prepared = False
        self._missing: str | None = None
        self._route = Route(launcher.model, "")
        self.conversation: Conversation | None = None
        self.offered: tuple[str, ...] | None = None
        """The tools that the program said it offers to the model, by our names; None until it began."""

    async def open(
        self, messages: Sequence[Message], route: Route, *, history: int, missing: str | None
    ) -> Conversation:
        """Start the program. See `nova_workers.engines.claude_agent.responder.Opener`.

        `missing` is a note to the model about missing tools.
        """
        if not self._prepared or missing != self._missing:
            await asyncio.to_thread(self._launcher.prepare, missing)
            self._prepared, self._missing = True, missing
        self._route = route
        past, prompt = _split(messages)
        base = await self._stored(messages[:history])
        if base is not None:
            try:
                return await self._begin(_Beginning(self._resumed_id, base, past[history:], prompt))
            except EngineFailure as failure:
                # The caller gets an answer in either case, and a new session.
                _log.warning("session_not_resumed", session_id=self._resumed_id, why=failure.message)
        return await self._begin(_Beginning(None, (), past, prompt))

    def to_store(self, messages: Sequence[Message]) -> NewSession | None:
        """Return the session as it is now.

        Args:
            messages: The whole conversation, with this turn's.

        Returns:
            None where the program was never started.
        """
        beginning, conversation = self._beginning, self.conversation
        if beginning is None or conversation is None:
            return None
        if conversation.idle:
            entries, compacted = kept(conversation.mirrored)
            parent = None if compacted else beginning.parent_id
            added = entries if compacted else (*self._added, *entries)
        else:
            # The program was stopped, so its transcript may be truncated. The ledger's messages are complete.
            parent = None
            added = tuple(self._entries(messages))
        return NewSession(self._session_id, parent, added, fingerprint(messages))

    async def _stored(self, history: Sequence[Message]) -> tuple[JsonObject, ...] | None:
        sessions = self._options.sessions
        if sessions is None or self._resumed_id is None:
            return None
        stored = await sessions.load(self._resumed_id)
        if stored is None:
            _log.info("session_gone", session_id=self._resumed_id)
            return None
        if history and stored.fingerprint != fingerprint(history):
            _log.info("session_out_of_date", session_id=self._resumed_id)
            return None
        if not all(map(is_entry, stored.entries)):
            _log.warning("session_unreadable", session_id=self._resumed_id)
            return None
        return stored.entries

    async def _begin(self, beginning: _Beginning) -> Conversation:
        self._session_id = new_session_id()
        self._beginning = beginning
        base = rebound(beginning.base, self._session_id)
        last = next((entry["uuid"] for entry in reversed(base) if entry.get("uuid")), None)
        self._added = self._entries(beginning.past, parent=last)
        resumed = bool(base or self._added)
        if resumed:
            await asyncio.to_thread(self._home.write_session, self._session_id, [*base, *self._added])
        interrupted = beginning.prompt is None
        launch = self._launcher.launch(self._session_id, self._route, resumed=resumed, interrupted=interrupted)
        self.conversation = self._converse(launch)
        try:
            if beginning.prompt is not None:
                await self.conversation.say(beginning.prompt)
            self.offered = await _begun(self.conversation)
        except EngineFailure:
            await self.conversation.close()
            raise
        return self.conversation

    def _entries(self, messages: Sequence[Message], parent: str | None = None) -> list[JsonObject]:
        return entries_of(
            messages,
            session_id=self._session_id,
            cwd=str(self._home.cwd),
            model=self._route.model,
            parent=parent,
        )


async def _begun(conversation: Conversation) -> tuple[str, ...]:
    """Wait until the program has read its session and begins the turn. Returns the tools that it has, by our names.

    Raises:
        EngineFailure: It does not.
    """
    while True:
        frame = await conversation.next()
        match frame:
            case {"type": "system", "subtype": "init"}:
                return tuple(own_name(str(name)) for name in frame.get("tools") or ())
            case {"type": "result"}:
                raise failure_of(frame)
            case Ended():
                raise program_ended(frame.complaints)
            case _:
                pass


def _split(messages: Sequence[Message]) -> tuple[tuple[Message, ...], tuple[ContentBlock, ...] | None]:
    """Return the messages for the transcript, and the prompt that follows."""
    if messages[-1].role == "assistant":
        return tuple(messages), _CONTINUE
    since_model = len(messages)
    while since_model and messages[since_model - 1].role != "assistant":
        since_model -= 1
    if any(block.get("type") == "tool_result" for message in messages[since_model:] for block in message.content):
        return tuple(messages), None
    return tuple(messages[:-1]), messages[-1].content
