"""The settings of the engine `openai`."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SecretStr

from nova_workers.base.config.forms import Count
from nova_workers.base.config.models import ModelPriceSetting
from nova_workers.base.config.sections import Section

ProviderName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
"""As a variable's name can have it, in lower case. It is in front of the slash of a model's name."""


class OpenAIProviderSetting(Section):
    """A server that speaks one of OpenAI's wire forms, and what its models support."""

    base_url: Annotated[str, Field(pattern=r"^https?://")] | None = None
    """With the version, such as ``http://127.0.0.1:11434/v1``. None is OpenAI."""
    api: Literal["responses", "chat"] | None = None
    """None: the Responses API with OpenAI, chat completions with every other server, since all have these."""
    api_key: SecretStr | None = None
    """None: OPENAI_API_KEY for OpenAI, no key for other servers."""
    api_keys: dict[str, SecretStr] = Field(default_factory=dict[str, SecretStr])
    """Several keys by name, in order of preference, in place of `api_key`."""
    headers: dict[str, SecretStr] = Field(default_factory=dict[str, SecretStr])
    """Sent with each request."""
    models: tuple[str, ...] = ()
    """Models that agents may name without the provider."""
    prices: dict[str, ModelPriceSetting] = Field(default_factory=dict[str, ModelPriceSetting])
    """By the server's name of a model, ``*`` for all others; they go before the built-in list."""
    context_windows: dict[str, Count] = Field(default_factory=dict[str, Count])
    """In tokens, likewise."""
    images: bool = True
    documents: bool = True
    """PDFs."""
    parallel_tool_calls: bool = True
    structured_output: Literal["json_schema", "json_object", "none"] = "json_schema"
    """What the server enforces of a structured answer. The answer is checked in each case."""
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """The field of chat completions that bounds an answer. OpenAI's reasoning models take only the second."""
    reasoning_field: str | None = None
    """The field of chat completions with the model's reasoning. None: ``reasoning_content`` or ``reasoning``."""
    return_reasoning: bool = True
    """Whether a turn's reasoning goes back with its tool results; of chat completions."""
    extra_body: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Fields that each request has in addition."""
    thinking_body: dict[str, Any] | None = None
    """Fields of requests of agents that ask for thinking. None: the reasoning effort."""


class OpenAISettings(Section):
    """The engine `openai`: OpenAI, and every server that speaks its wire forms."""

    model: Annotated[str | None, BeforeValidator(lambda given: given or None)] = None
    """What ``haiku``, ``sonnet`` and ``opus`` mean with this engine where `aliases` does not say: titles and summaries
    ask for them too. Without it the workers have no such engine, and do not import its SDK (0.4 s of CPU and 21 MB)."""
    aliases: dict[str, str] = Field(default_factory=dict[str, str])
    """Models by alias, with this engine; they go before those of `ModelSettings`, whose ``haiku``, ``sonnet`` and
    ``opus`` are Anthropic's."""
    fallbacks: tuple[str, ...] = ()
    """Models to use instead, in this order, if the wanted one is unavailable. Those of `ModelSettings` are other
    engines'."""
    providers: dict[ProviderName, OpenAIProviderSetting] = Field(default_factory=dict[str, OpenAIProviderSetting])
    """Servers by name. ``openai`` is there in any case."""
