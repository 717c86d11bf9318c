"""The seam between one inbound channel and what all of them share.

Above it: `nova_workers.channels.relay`, which submits each update once and returns the replies. Below it: the network
or the protocol of the channel, and nothing of the fleet.
"""

import base64
import binascii
from collections.abc import AsyncIterator
from typing import Annotated, Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, StringConstraints, model_validator

from nova_workers.contracts.content import ContentBlock, text_block

__all__ = ["Attachment", "InboundChannel", "Reply", "ReplyType", "Update"]

_Id = Annotated[str, StringConstraints(min_length=1, max_length=500)]

ReplyType = Literal["partial", "answer", "question", "approval", "failure", "refusal"]
"""What a reply is: the answer so far; the answer; a question of the agent; a call that needs permission; why there is
no answer; why the update was not accepted."""


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


class Update(_Value):
    """A message of a person in the channel.

    Attributes:
        id: Identifies the update within the channel. The same id again is the same update.
        conversation: Identifies the conversation within the channel. Each has one thread.
        sender: The person, as the channel has verified it.
        wait_id: The question or approval that this answers, if the channel knows it, for instance from a button.
            Without it, an update to a conversation whose run waits for a person answers that.
    """

    id: _Id
    conversation: _Id
    sender: _Id
    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    wait_id: str | None = None

    @model_validator(mode="after")
    def _has_content(self) -> Self:
        if not self.text.strip() and not self.attachments:
            raise ValueError("the update has neither text nor attachments")
        return self

    def content(self) -> list[ContentBlock]:
        """Return the blocks of the message."""
        text = [text_block(self.text)] if self.text.strip() else []
        return [*text, *(attachment.block() for attachment in self.attachments)]


class Reply(_Value):
    """What the channel shows in a conversation.

    Attributes:
        id: Equal each time that the same reply is delivered. All partial replies of an answer have the answer's id:
            each replaces the one before.
        update_id: The update that led to it.
        wait_id: Of a question or an approval: what an update names to answer it.
        options: Of a question: the choices; empty accepts any text. An approval is answered with yes or no.
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


class InboundChannel(Protocol):
    """One channel. Its methods may be called concurrently, by the conversations that it has open."""

    name: str
    """Up to 64 visible ASCII characters. Threads and keys of submissions are named by it, so it never changes."""
    streams: bool
    """Whether it shows partial answers."""

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

    async def done(self, update: Update) -> None:
        """Forget an update: its message was answered, or it was the answer to a question, or it was refused.

        Raises:
            DeliveryFailed: It is not forgotten, and comes again after a restart.
        """
        ...

    async def close(self) -> None:
        """Release connections."""
        ...


def _text(data: str) -> str:
    try:
        return base64.b64decode(data, validate=True).decode("utf-8", errors="replace")
    except binascii.Error:
        # The API refuses the empty text and names the field.
        return ""
