"""What these modules need of values that are defined elsewhere, by shape."""

from typing import Literal, Protocol


class TelemetryConfig(Protocol):
    """The operator's choices; `config.sections.TelemetrySettings` has this shape."""

    @property
    def log_format(self) -> Literal["console", "json"]:
        """How a line looks."""
        ...

    @property
    def log_level(self) -> Literal["debug", "info", "warning", "error"]:
        """The lowest level that is logged."""
        ...

    @property
    def otlp_endpoint(self) -> str | None:
        """Base URL of an OTLP/HTTP collector; None records no spans."""
        ...

    @property
    def service_name(self) -> str:
        """``service.name`` of every span."""
        ...

    @property
    def trace_content(self) -> bool:
        """Whether spans record what people, models and tools wrote."""
        ...


class TokenCounts(Protocol):
    """Tokens and cost of model calls; `contracts.usage.TokenUsage` has this shape."""

    @property
    def input_tokens(self) -> int:
        """Neither read from nor written to the prompt cache."""
        ...

    @property
    def output_tokens(self) -> int:
        """Produced, reasoning included."""
        ...

    @property
    def cache_read_tokens(self) -> int:
        """Read from the prompt cache."""
        ...

    @property
    def cache_write_tokens(self) -> int:
        """Written to the prompt cache."""
        ...

    @property
    def reasoning_tokens(self) -> int:
        """The part of the output that was thinking."""
        ...

    @property
    def cost_usd(self) -> float | None:
        """None where the price of the model is not known."""
        ...
