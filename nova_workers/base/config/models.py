"""The settings of models and engines."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr

from nova_workers.base.config.forms import Count, OptionalHttpUrl, Seconds
from nova_workers.base.config.sections import Section


class ModelProfile(Section):
    """A key of the model provider."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    """For logs, messages and metrics."""
    api_key: SecretStr
    base_url: OptionalHttpUrl = None
    """None takes the section's."""


class ModelRateLimit(Section):
    """The limits of all workers together for one key and one model per minute; unset is no limit."""

    requests_per_minute: Count | None = None
    tokens_per_minute: Count | None = None
    """Input and output tokens, without those read from the prompt cache."""


class ModelPriceSetting(Section):
    """US dollars for a million tokens."""

    input: Annotated[float, Field(ge=0)]
    output: Annotated[float, Field(ge=0)]
    cache_read: Annotated[float, Field(ge=0)] | None = None
    """None: a tenth of `input`."""
    cache_write: Annotated[float, Field(ge=0)] | None = None
    """None: five quarters of `input`."""
    web_search: Annotated[float, Field(ge=0)] = 10.0
    """The price of a thousand searches by the provider."""


class ModelSettings(Section):
    """The model provider."""

    api_key: SecretStr | None = None
    """Falls back to ANTHROPIC_API_KEY."""
    base_url: OptionalHttpUrl = None
    """Falls back to ANTHROPIC_BASE_URL, then to the SDK's own."""
    profiles: tuple[ModelProfile, ...] = ()
    """Several keys, in order of preference, instead of `api_key`. One that is refused or over its limit rests, and the
    next is used."""
    fallbacks: tuple[str, ...] = ()
    """Models to use instead, in this order, if the wanted one is unavailable. Aliases or ids."""
    rate_limits: dict[str, ModelRateLimit] = Field(default_factory=dict[str, ModelRateLimit])
    """The limits by alias or id; ``*`` is for all other models. A call over the limit waits."""
    prices: dict[str, ModelPriceSetting] = Field(default_factory=dict[str, ModelPriceSetting])
    """The prices by alias or id; they override the built-in list."""
    max_retries: Annotated[int, Field(ge=0)] = 5
    """Retries after the first attempt at a response; about 15 s of pauses."""
    breaker_failures: Annotated[int, Field(ge=2)] = 2
    """Different conversations that a model fails one after the other, in the whole fleet, after which it is not called
    for a while. One alone may be what the provider cannot answer."""
    breaker_open_s: Seconds = 2.0
    """The pause until another call tries. Doubles with each failed try, up to ten times."""
    aliases: dict[str, str] = Field(default_factory=dict[str, str])
    """Overrides of the built-in alias map (haiku, sonnet, opus → the newest of each in the SDK)."""
    max_tokens: Count = 8192
    context_windows: dict[str, Count] = Field(default_factory=dict[str, Count])
    """Context windows by alias or id; overrides the built-in list."""
    context_window_tokens: Count = 200_000
    """The window of models that neither `context_windows` nor the built-in list names."""
    max_context_tokens: Count = 200_000
    """Most of a model's window that a conversation may fill. Models take up to 1,000,000, but each call then costs five
    times as much; raise it where that is worth it."""
    compaction_model: str = "haiku"
    """The model that summarizes a conversation that grows too long."""
    compact_at: Annotated[float, Field(gt=0, le=1)] = 0.8
    """Share of the window (of `max_context_tokens`, if that is less) at which a conversation is compacted before its
    next turn, or between two steps of one."""
    compact_keep: Annotated[float, Field(ge=0, lt=1)] = 0.25
    """Share of the same that the newest turns may fill beside the summary."""
    first_byte_timeout_s: Seconds = 120.0
    """Longest wait until a response begins, with a million tokens to read; then another attempt, or another model."""
    request_timeout_s: Seconds = 600.0
    """Longest silence within a response."""
    max_connections: Count = 1000


class ClaudeAgentSettings(Section):
    """The engine `claude_agent`, of the extra ``claude-agent``."""

    max_processes: Count = 8
    """Concurrent turns of one worker; others wait. Each is a process: 215 MB and 0.5 to 0.7 s of CPU (measured)."""
    program: Path | None = None
    """The Claude Code program; None takes the one that ships with the SDK, then ``claude`` on the PATH."""
