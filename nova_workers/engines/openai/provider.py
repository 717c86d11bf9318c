"""Providers: what an operator configures of a server that speaks one of the two wire forms."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from urllib.parse import urlsplit

from nova_workers.engines.prices import ModelPrice

WireForm = Literal["responses", "chat"]
"""The Responses API (``POST /responses``) or chat completions (``POST /chat/completions``)."""

StructuredOutput = Literal["json_schema", "json_object", "none"]
"""What the server enforces of a structured answer: the schema; that it is JSON; nothing."""

DEFAULT_PROVIDER = "openai"
"""The provider of models that name none."""


OPENAI_URL = "https://api.openai.com/v1"


@dataclass(frozen=True, slots=True)
class Key:
    """An API key.

    Attributes:
        name: Appears in logs, messages and metrics.
        api_key: None sends none.
    """

    name: str = "default"
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class OpenAIProvider:
    """A server, and what it is known to support.

    Attributes:
        name: The part of a model's name before the slash.
        base_url: None is OpenAI itself.
        api: The wire form.
        keys: In order of preference; at least one.
        headers: Sent with each request.
        models: Models of this provider that may be named without it.
        prices: By the server's name of the model; ``*`` is for all others.
        price_list: The provider's id in `genai-prices`, for prices and windows not configured here; None has none.
        context_windows: In tokens, likewise with ``*``.
        images: Whether models take images.
        documents: Whether models take PDFs.
        parallel_tool_calls: Whether the model may make several calls in one response.
        structured_output: See `StructuredOutput`.
        max_tokens_field: Name of the request's field for the limit of a response (chat completions).
        reasoning_field: The field of a delta with the model's reasoning (chat completions); None looks for
            ``reasoning_content`` and ``reasoning``. ``reasoning_details`` is a list of objects with ``text``.
        return_reasoning: Whether the reasoning of the running turn goes back with its tool results (chat completions).
        extra_body: Fields added to each request.
        thinking_body: Fields added in place of the reasoning effort if the agent asks for thinking.
    """

    name: str = DEFAULT_PROVIDER
    base_url: str | None = None
    api: WireForm = "responses"
    keys: tuple[Key, ...] = (Key(),)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    models: tuple[str, ...] = ()
    prices: Mapping[str, ModelPrice] = field(default_factory=dict[str, ModelPrice])
    price_list: str | None = None
    context_windows: Mapping[str, int] = field(default_factory=dict[str, int])
    images: bool = True
    documents: bool = True
    parallel_tool_calls: bool = True
    structured_output: StructuredOutput = "json_schema"
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    reasoning_field: str | None = None
    return_reasoning: bool = True
    extra_body: Mapping[str, Any] = field(default_factory=dict[str, Any])
    thinking_body: Mapping[str, Any] | None = None

    def speaking(self, api: WireForm) -> "OpenAIProvider":
        """Return the provider with another wire form."""
        return replace(self, api=api)

    @property
    def profiles(self) -> tuple[tuple[str, Key], ...]:
        """The keys by the name under which the fleet limits them: the provider's, and with several keys also theirs."""
        if len(self.keys) == 1:
            return ((self.name, self.keys[0]),)
        return tuple((f"{self.name}.{key.name}", key) for key in self.keys)

    @property
    def is_openai(self) -> bool:
        """Whether this is OpenAI's own server, whose models' rules are known."""
        host = urlsplit(self.base_url or OPENAI_URL).hostname or ""
        return f".{host}".endswith(".api.openai.com")
