"""The HTTP contract of what a model call was asked with, rebuilt from the ledger."""

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from nova_workers.contracts.bodies import View
from nova_workers.contracts.content import Role

Wire = Literal["recorded", "not_given", "not_recorded"]


class RequestSection(View):
    """A section of a system prompt."""

    tag: str | None
    """Such as `Instructions`; null for text of the engine."""
    text: str
    tokens: int
    """An estimate."""


class RequestTool(View):
    """A tool that the model was offered."""

    name: str
    description: str | None
    input_schema: dict[str, Any] | None
    """A JSON schema. Null for a tool that the provider runs, and in a list that was too long to be stored."""
    tokens: int
    """An estimate."""


class RequestMessage(View):
    """A message of the conversation, as the engine got it. Images and documents have no base64 data."""

    index: int
    """Its position, from 0 for the oldest."""
    step: int | None
    """The step of this run that it belongs to. Null: it is older, or the run's own message."""
    role: Role
    content: list[dict[str, Any]]
    tokens: int
    """An estimate."""


class ModelRequestView(View):
    """What a model call was asked with, and its response."""

    run_id: str
    turn_id: str
    step: int
    engine: str | None
    """Null while the run is open."""
    wire: Wire
    """`recorded`: the prompt, tools and parameters are those of the request. `not_given`: the engine does not make its
    requests itself (a program of a vendor, code of users), so only the conversation is known. `not_recorded`: the call
    was made by an earlier release, or in another fleet."""
    requested_at: datetime | None
    first_token_ms: int | None
    """Milliseconds from the request until the response began."""
    parameters: dict[str, Any]
    """Such as `model` and `max_tokens`, in the words of the provider."""
    system: list[RequestSection]
    system_tokens: int
    tools: list[RequestTool]
    tools_tokens: int
    message_count: int
    messages_tokens: int
    messages: list[RequestMessage]
    """A page, newest first."""
    next_cursor: str | None = None
    """The cursor of the messages before; null on the last page."""
    response: list[RequestMessage] = Field(default_factory=list[RequestMessage])
    """What the call brought: the response, the results of its tools, and messages that joined after it."""
