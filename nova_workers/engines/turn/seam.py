"""The seam inside an engine: above it the turn, which all engines share; below it one model and its tools.

`Turn` implements the run protocol: journal, steering, authorization, limits, aborts. It is vendor-neutral. A
`Responder` gets one response from one model, and `Tools` runs one call. Engines whose SDK has its own loop do not need
to use this interface; the contract tests require the same behaviour of them.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from nova_workers.base.errors import EngineFailure, Outage
from nova_workers.base.vocabulary import Limit
from nova_workers.contracts.content import ContentBlock, JsonObject, Message
from nova_workers.contracts.engine import ToolCall, TurnListener
from nova_workers.contracts.steps import ModelRequest
from nova_workers.contracts.usage import TokenUsage
from nova_workers.engines.turn.interruption import Interruption

Ending = Literal["end", "tools", "resume", "max_tokens"]
"""How a response ended: complete; with tool calls; to be sent back so that the provider continues; cut off."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request to the model: the whole conversation.

    Attributes:
        messages: Oldest first. The turn appends to this list after the response, so do not keep a reference.
        step: Number of the turn's steps before this response.
        steering: The messages among them that joined at the last step boundary.
    """

    messages: Sequence[Message]
    step: int
    steering: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """The outcome of a call: content blocks for the model, and whether it failed.

    Attributes:
        deferral: Set if the result comes later from outside; describes what the call waits for.
        failure: Set if there is no result, and the turn ends with this after the step's other calls.
    """

    content: tuple[ContentBlock, ...]
    failed: bool = False
    deferral: JsonObject | None = None
    failure: EngineFailure | None = None


@dataclass(frozen=True, slots=True)
class Response:
    """One complete model response. Unless the ending is ``tools``, its tool_use blocks are dropped.

    Attributes:
        usage: Usage of this response alone; further usage is in `Draft.extra_usage`.
        id: The provider's id of it, for traces.
        finish_reason: The provider's word for how it ended, for traces.
        results: Outcomes by the ids of its calls, if what responds has made all of them already. Each is one that may
            be made again: they are committed with the step.
    """

    content: tuple[ContentBlock, ...]
    ending: Ending
    usage: TokenUsage
    model: str | None = None
    id: str | None = None
    finish_reason: str | None = None
    results: Mapping[str, ToolOutcome] = field(default_factory=dict[str, ToolOutcome])


class Draft:
    """A streaming response: forwards its pieces to the listener, and keeps them in case of a stop or a failure."""

    __slots__ = (
        "_announcement",
        "_asked_s",
        "_began_s",
        "_interruption",
        "_listener",
        "_on_begin",
        "_on_call",
        "_on_reasoning",
        "_on_token",
        "_pieces",
        "_reasoned",
        "asked",
        "extra_usage",
        "limit",
        "model",
        "usage",
    )

    def __init__(
        self,
        listener: TurnListener,
        interruption: Interruption,
        announcement: asyncio.TimerHandle | None = None,
        on_call: Callable[[ContentBlock], None] | None = None,
    ) -> None:
        self._listener = listener
        self._on_token = listener.on_token
        self._on_reasoning = listener.on_reasoning
        self._interruption = interruption
        self._announcement = announcement
        self._on_call = on_call
        self._on_begin: Callable[[], None] | None = None
        self._pieces: list[str] = []
        self._reasoned = False
        self._asked_s = time.monotonic()
        self._began_s: float | None = None
        self.asked: ModelRequest | None = None
        """The last request, as far as the responder reports it."""
        self.usage = TokenUsage()
        """The response's usage so far. The responder keeps it current."""
        self.extra_usage = TokenUsage()
        """Usage besides the response: by attempts that broke off, and by other work of the provider for it. It counts
        against budgets, but is no measure of the conversation's length."""
        self.model: str | None = None
        self.limit: Limit | None = None
        """The budget that lets the response be no longer, where the turn itself would permit more."""

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._pieces)

    @property
    def first_token_ms(self) -> int | None:
        """Milliseconds from the request until the response began; None while it has not."""
        return None if self._began_s is None else max(0, round((self._began_s - self._asked_s) * 1000))

    def request(self, request: ModelRequest) -> None:
        """Report what the model is asked with. The responder calls it right before each request."""
        self._asked_s, self._began_s = time.monotonic(), None
        self.asked = request
        self._listener.on_request(request)

    def _note_first(self) -> None:
        if self._began_s is None:
            self._began_s = time.monotonic()

    def when_begun(self, callback: Callable[[], None]) -> None:
        """Set the callback for the beginning of the next response, replacing an earlier one."""
        self._on_begin = callback

    def begin(self) -> None:
        """Report that the model begins to answer. The responder calls it at the first sign; later calls do nothing."""
        self._note_first()
        if self._on_begin is not None:
            callback, self._on_begin = self._on_begin, None
            callback()

    def token(self, text: str) -> None:
        """Forward a piece of the answer.

        Raises:
            TurnStopped: The turn must stop. Checked here because many pieces can arrive in one network read without an
                await.
            EngineFailure: It is no text: SDKs do not check the types of what they stream.
        """
        if type(text) is not str:
            raise _no_text()
        self._note_first()
        self._pieces.append(text)
        self.cancel_announcement()
        self._on_token(text)
        self._interruption.check()

    def reasoning(self, text: str) -> None:
        """Forward a piece of extended thinking. Raises as `token` does."""
        if type(text) is not str:
            raise _no_text()
        self._note_first()
        self.cancel_announcement()
        self._reasoned = True
        self._on_reasoning(text)
        self._interruption.check()

    def leave_out(self, option: str, note: str) -> None:
        """Report that requests go without an option of the turn's."""
        self._listener.on_option_left_out(option, note)

    def call(self, block: ContentBlock) -> None:
        """Report a complete tool call while the response still streams. Optional for responders."""
        self.cancel_announcement()
        if self._on_call is not None:
            self._on_call(block)

    def await_provider(self, outage: Outage, why: str, pause_s: float) -> None:
        """Report that the responder pauses, because the provider cannot be used."""
        self.cancel_announcement()
        self._listener.on_provider_wait(outage, why, pause_s)

    @property
    def restartable(self) -> bool:
        """Whether the response may be requested again: nothing was forwarded, or the listener can retract it."""
        text, reasoning = bool(self._pieces), self._reasoned
        return not (text or reasoning) or self._listener.can_restart(text=text, reasoning=reasoning)

    def restart(self) -> None:
        """Start the response over; forwarded pieces are void. Requires `restartable`; no effect on an empty draft."""
        if self._pieces or self._reasoned:
            self._listener.on_restart()
        self._reasoned = False
        self._began_s = None
        self._pieces.clear()
        self.extra_usage += self.usage
        self.usage = TokenUsage()

    def cancel_announcement(self) -> None:
        """Cancel the pending announcement that the turn waits for the model, since it has answered."""
        if self._announcement is not None:
            self._announcement.cancel()
            self._announcement = None


def _no_text() -> EngineFailure:
    return EngineFailure("The model provider sent a piece of text that is no text.", kind="model_error", retryable=True)


@dataclass(frozen=True, slots=True)
class BlockPlace:
    """The position of a block in a conversation: indices of the message, the block, and the part of a tool result."""

    message: int
    block: int
    part: int | None = None


class ContentRefused(EngineFailure):
    """The provider refused a request with 400, 413 or 422; it may accept it without a block of the conversation.

    Attributes:
        place: The block's position in `Ask.messages`; None if the provider did not name it.
        media: Which kind of block it is, ``image`` or ``document``; None if the provider did not name that either.
        named: Whether the provider named a block, or an image or a document; else it may be any.
        too_large: The request is too large for the server.
    """

    def __init__(
        self,
        message: str,
        /,
        *,
        place: BlockPlace | None = None,
        media: str | None = None,
        named: bool = True,
        too_large: bool = False,
    ) -> None:
        super().__init__(message, kind="context_overflow" if too_large else "model_error", retryable=False)
        self.place = place
        self.media = media
        self.named = named
        self.too_large = too_large


class ToolRefused(EngineFailure):
    """The provider refused a request because of a tool, which is left out from now on: the request can go again."""

    def __init__(self, message: str, /) -> None:
        super().__init__(message, kind="model_error", retryable=False)


class Responder(Protocol):
    """The turn's interface to one model."""

    async def respond(self, ask: Ask, draft: Draft) -> Response:
        """Get the model's next response, streaming it through `draft`. May be canceled at any await.

        Raises:
            ContentRefused: The provider refused a block of the conversation.
            ToolRefused: The provider refused a tool.
            EngineFailure: There is no complete response; `draft` holds the part that arrived.
        """
        ...


class Tools(Protocol):
    """The tools of one turn."""

    async def is_idempotent(self, name: str) -> bool:
        """Return whether the tool may be run again after a crash. False for an unknown tool."""
        ...

    async def call(self, call: ToolCall) -> ToolOutcome:
        """Run a call. May be canceled at any await; the calls of a step run concurrently.

        Raises:
            ToolFailure: Its message goes to the model.
        """
        ...
