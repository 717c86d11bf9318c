"""The seam inside an engine: above it the turn, which is the same for all; below it one model and its tools.

`Turn` knows the run protocol: the journal, steering, authorization, limits, aborts. It knows no vendor. A
`Responder` knows how to get one response out of one model, and `Tools` how to run one call. Engines whose SDK
brings its own loop do not use this seam; the contract suite holds them to the same behaviour.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from nova_workers.contracts.content import ContentBlock, JsonObject, Message
from nova_workers.contracts.engine import ToolCall, TurnListener
from nova_workers.contracts.usage import TokenUsage
from nova_workers.engines.turn.interruption import Interruption
from nova_workers.errors import EngineFailure

__all__ = ["Ask", "BlockPlace", "ContentRefused", "Draft", "Ending", "Responder", "Response", "ToolOutcome", "Tools"]

Ending = Literal["end", "tools", "resume", "max_tokens"]
"""How a response ended: for good; it calls tools; the provider wants it back to go on; it was cut off."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One question to the model: the whole conversation.

    Attributes:
        messages: Oldest first. The turn goes on to append to it after the response; do not keep it.
        step: Steps of the turn before this response.
        steering: Those of the messages that joined at the last step boundary.
    """

    messages: Sequence[Message]
    step: int
    steering: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class Response:
    """One whole model response. With an ending other than ``tools``, its tool_use blocks are dropped.

    Attributes:
        usage: What this response alone used; the rest is in `Draft.beside`.
    """

    content: tuple[ContentBlock, ...]
    ending: Ending
    usage: TokenUsage
    model: str | None = None


class Draft:
    """A response while it streams: passes its pieces on, and keeps what a stop or a failure would leave behind."""

    __slots__ = (
        "_hush",
        "_interruption",
        "_listener",
        "_on_begin",
        "_on_call",
        "_on_reasoning",
        "_on_token",
        "_pieces",
        "_reasoned",
        "beside",
        "model",
        "usage",
    )

    def __init__(
        self,
        listener: TurnListener,
        interruption: Interruption,
        hush: asyncio.TimerHandle | None = None,
        on_call: Callable[[ContentBlock], None] | None = None,
    ) -> None:
        self._listener = listener
        self._on_token = listener.on_token
        self._on_reasoning = listener.on_reasoning
        self._interruption = interruption
        self._hush = hush
        self._on_call = on_call
        self._on_begin: Callable[[], None] | None = None
        self._pieces: list[str] = []
        self._reasoned = False
        self.usage = TokenUsage()
        """What is known of the response's usage so far. The responder keeps it current."""
        self.beside = TokenUsage()
        """What was used beside the response: by those that broke off and were begun anew, and by whatever else the
        provider did for it. It counts and costs, and says nothing of how long the conversation is."""
        self.model: str | None = None

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._pieces)

    def when_begun(self, tell: Callable[[], None]) -> None:
        """Have the next response's begin told. Who asked before is told no more."""
        self._on_begin = tell

    def begin(self) -> None:
        """Say that the model begins to answer. The responder calls it at its first sign; later calls do nothing."""
        if self._on_begin is not None:
            tell, self._on_begin = self._on_begin, None
            tell()

    def token(self, text: str) -> None:
        """Pass on a piece of the answer.

        Raises:
            TurnStopped: The turn must stop; many pieces can arrive in one network read, between two waits.
        """
        self._pieces.append(text)
        self.hush()
        self._on_token(text)
        self._interruption.check()

    def reasoning(self, text: str) -> None:
        """Pass on a piece of extended thinking. Raises as `token` does."""
        self.hush()
        self._reasoned = True
        self._on_reasoning(text)
        self._interruption.check()

    def call(self, block: ContentBlock) -> None:
        """Pass on a tool call that is whole, while the response goes on. A responder need not."""
        self.hush()
        if self._on_call is not None:
            self._on_call(block)

    @property
    def restartable(self) -> bool:
        """Whether the response may come anew: nothing was passed on, or the listener can take it back."""
        text, reasoning = bool(self._pieces), self._reasoned
        return not (text or reasoning) or self._listener.can_restart(text=text, reasoning=reasoning)

    def restart(self) -> None:
        """Begin the response anew: what was passed on is void. Only where it is `restartable`; harmless at first."""
        if self._pieces or self._reasoned:
            self._listener.on_restart()
        self._reasoned = False
        self._pieces.clear()
        self.beside += self.usage
        self.usage = TokenUsage()

    def hush(self) -> None:
        """The model spoke: do not announce that it is being waited for."""
        if self._hush is not None:
            self._hush.cancel()
            self._hush = None


@dataclass(frozen=True, slots=True)
class BlockPlace:
    """Where a block stands in a conversation: indices of the message, the block, and the part of a tool's result."""

    message: int
    block: int
    part: int | None = None


class ContentRefused(EngineFailure):
    """The provider refused a request because of a block in the conversation; without that block it may accept it.

    Attributes:
        place: Where the block stands in `Ask.messages`; None where the provider did not say.
    """

    def __init__(self, message: str, /, *, place: BlockPlace | None = None) -> None:
        super().__init__(message, kind="model_error", retryable=False)
        self.place = place


class Responder(Protocol):
    """One model, as the turn sees it."""

    async def respond(self, ask: Ask, draft: Draft) -> Response:
        """Get the model's next response, streaming it through `draft`. May be cancelled at any await.

        Raises:
            ContentRefused: The provider refused a block of the conversation.
            EngineFailure: There is no response; `draft` holds what arrived of it.
        """
        ...


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What came of a call: content blocks for the model, and whether it failed.

    Attributes:
        deferral: There is no result yet: it comes from outside, and this says what it waits for.
    """

    content: tuple[ContentBlock, ...]
    failed: bool = False
    deferral: JsonObject | None = None


class Tools(Protocol):
    """The tools of one turn."""

    async def is_idempotent(self, name: str) -> bool:
        """Return whether the tool may be run again after a crash. False for a tool that is not known."""
        ...

    async def call(self, call: ToolCall) -> ToolOutcome:
        """Run a call. May be cancelled at any await; calls of one step run at the same time.

        Raises:
            ToolFailure: Its message goes to the model.
        """
        ...
