"""The seam between one inbound channel and what all of them share.

Above it: `nova_workers.channels.relay`, which submits each update once and returns the replies. Below it: the network
or the protocol of the channel, and nothing of the fleet.
"""

import asyncio
import base64
import binascii
from collections.abc import AsyncIterator
from typing import Annotated, Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from nova_workers.base.vocabulary import Rating
from nova_workers.contracts.content import ContentBlock, text_block

_Id = Annotated[str, StringConstraints(min_length=1, max_length=500)]

ReplyType = Literal[
    "partial",
    "answer",
    "rated",
    "question",
    "approval",
    "chosen",
    "closed",
    "failure",
    "refusal",
    "notice",
    "notification",
]
"""What a reply is: the answer so far; the answer; that the update rated an answer; a question of the agent; a call that
needs permission; the option that the update chose; that a question needs no answer any more; why there is no answer;
why the update was not accepted; the answer to a command; what an agent hands over beside its answers."""

Command = Literal["new", "reset", "agents", "agent", "model", "status", "usage", "stop", "help"]
"""What an update asks of the channel itself: a new conversation; the same with the first agent and model, and the end
of what runs; the agents; a conversation with the agent that the text names; the model, or another one for the messages
to come; what happens now; tokens and cost; the end of what runs; a help text."""

FIRST_CHARS = 40
"""An answer so far is shown once it has this many, so that a phone announces more than its first word. Before it, only
an answer with calls is."""

_MAX_QUOTE_CHARS = 1_000


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Attachment(_Value):
    """An image, a PDF or a plain text that belongs to an update. The API checks it, and refuses other types.

    Attributes:
        data: The file, as base64.
    """

    media_type: str
    data: str

    def block(self) -> ContentBlock:
        """Return the content block of a message."""
        kind = "image" if self.media_type.startswith("image/") else "document"
        source = {"type": "base64", "media_type": self.media_type, "data": self.data}
        if self.media_type == "text/plain":
            source = {"type": "text", "media_type": self.media_type, "data": _text(self.data)}
        return {"type": kind, "source": source}


class Origin(_Value):
    """Where replies go.

    Attributes:
        id: Identifies the update within the channel. The same id again is the same update.
        conversation: Identifies the conversation within the channel. Each has one thread.
        sender: The person, as the channel has verified it.
    """

    id: _Id
    conversation: _Id
    sender: _Id


class Update(Origin):
    """A message of a person in the channel.

    Attributes:
        wait_id: The question or approval that this answers, if the channel knows it, for instance from a button.
            Without it, an update to a conversation whose run waits for a person answers that.
        run_id: With `wait_id`: the run that asks, if it may be one of another conversation. With `rating`: the run
            whose answer is rated.
        choice: With `wait_id`: the number of the chosen option, from 0. Of an approval 0 is yes.
        command: What is asked of the channel itself; `text` has its argument.
        quote: The earlier text that the message is a reply to. The agent reads its beginning, as a quotation.
        rating: What its sender says of an answer. Another one of the same sender replaces it.
        refusal: Why the channel cannot take the update, for its sender. Nothing is submitted.
    """

    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    wait_id: str | None = None
    run_id: str | None = None
    choice: Annotated[int, Field(ge=0, le=100)] | None = None
    command: Command | None = None
    quote: str | None = None
    rating: Rating | None = None
    refusal: str | None = None

    @model_validator(mode="after")
    def _has_content(self) -> Self:
        if self.choice is not None and self.wait_id is None:
            raise ValueError("choice is of a question; give its wait_id")
        if self.rating is not None and self.run_id is None:
            raise ValueError("rating is of an answer; give its run_id")
        is_empty = not self.text.strip() and not self.attachments
        if is_empty and all(one is None for one in (self.choice, self.command, self.rating, self.refusal)):
            raise ValueError("the update has neither text nor attachments")
        return self

    def content(self) -> list[ContentBlock]:
        """Return the blocks of the message."""
        parts = [_quotation(self.quote or ""), self.text if self.text.strip() else ""]
        text = [text_block("\n\n".join(part for part in parts if part))] if any(parts) else []
        return [*text, *(attachment.block() for attachment in self.attachments)]

    def origin(self) -> Origin:
        """Return where replies to it go."""
        return Origin(id=self.id, conversation=self.conversation, sender=self.sender)


class ToolLine(_Value):
    """A tool call of a run, as its conversation shows it."""

    name: str
    status: Literal["running", "completed", "failed"]


class File(_Value):
    """A file that an agent sent.

    Attributes:
        content: The bytes; only while the reply is delivered, and up to the `max_file_bytes` of the channel.
    """

    id: str
    name: str
    media_type: str
    size_bytes: int
    content: bytes | None = Field(default=None, exclude=True)


class Reply(_Value):
    """What the channel shows in a conversation.

    Attributes:
        id: Equal each time that the same reply is delivered. All partial replies of an answer have the answer's id:
            each replaces the one before. A question that is closed has the id that it had when it was asked.
        update_id: The update that led to it; of a notification the id of the inbox's item.
        wait_id: Of a question or an approval: what an update names to answer it.
        options: Of a question: the choices. An approval is answered with yes or no.
        labels: What people read on the options, one each. Empty: the options themselves.
        only_options: Whether the question takes no other answer.
        command: The options are arguments of this command instead.
        detail: Of a failure: the error itself, for those who look after the channel.
        rating: Of a rated answer: what the update said of it.
        tools: Of a partial reply: the calls of the run so far.
        file: What is handed over beside the text.
    """

    type: ReplyType
    id: str
    update_id: str
    conversation: str
    sender: str
    text: str
    run_id: str | None = None
    wait_id: str | None = None
    options: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    only_options: bool = False
    command: Command | None = None
    detail: str | None = None
    rating: Rating | None = None
    tools: tuple[ToolLine, ...] = ()
    file: File | None = None


class SentMessages(Protocol):
    """Which of a channel's messages show a reply: what a channel that edits its messages must not forget.

    Each change is written before its method returns, in the fleet (`nova_workers.channels.journal.Journal`).
    """

    def messages(self, reply: Reply) -> tuple[str, ...]:
        """Return the ids of the channel's messages that show a reply."""
        ...

    async def add_message(self, reply: Reply, message_id: str) -> None:
        """Record a message that shows a reply, so that it is edited from now on."""
        ...


class Rests(Protocol):
    """Reports to the fleet that a channel pauses after failures, so that operators see why, and can end the pause.

    `nova_workers.channels.journal.Journal` is one.
    """

    async def rest(self, error: str, for_s: float) -> None:
        """Pause before another try: for so long, or until an operator asks for one.

        Args:
            error: Why, in words for people who look after the channel; without secrets.
            for_s: Seconds.
        """
        ...

    def works(self) -> None:
        """Report that a try succeeded. It costs nothing if the channel worked before."""
        ...


class UnreportedRests:
    """Implements `Rests` where there is no fleet, as in a test."""

    async def rest(self, error: str, for_s: float) -> None:
        """Pause."""
        await asyncio.sleep(for_s)

    def works(self) -> None:
        """Report nothing."""


class InboundChannel(Protocol):
    """One channel. Its methods may be called concurrently, by the conversations that it has open."""

    name: str
    """Up to 64 visible ASCII characters. Threads and keys of submissions are named by it, so it never changes."""
    streams: bool
    """Whether it shows partial answers."""
    max_file_bytes: int
    """A reply has its file's content up to this size, and above it none; 0 for a channel that shows no files."""

    def updates(self) -> AsyncIterator[Update]:
        """Return the updates, those of a conversation in order. They end when the channel does.

        An update that is not `done` should come again after a restart, within 24 hours: so it survives a crash.
        """
        ...

    async def deliver(self, reply: Reply) -> None:
        """Show a reply. It may come again after a crash, under the same id.

        Raises:
            DeliveryFailed: It was not shown; `retryable` says whether it is delivered again.
        """
        ...

    async def done(self, update: Origin) -> None:
        """Forget an update: its message was answered, or it was the answer to a question, or it was refused.

        With a `Journal` it comes earlier: as soon as the fleet has the update, and what replies to it is recorded.

        Raises:
            DeliveryFailed: It is not forgotten, and comes again after a restart.
        """
        ...

    async def close(self) -> None:
        """Release connections."""
        ...


def _quotation(text: str) -> str:
    text = text.strip()
    if len(text) > _MAX_QUOTE_CHARS:
        text = f"{text[:_MAX_QUOTE_CHARS]}…"
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def _text(data: str) -> str:
    try:
        return base64.b64decode(data, validate=True).decode("utf-8", errors="replace")
    except binascii.Error:
        # The API refuses the empty text and names the field.
        return ""
