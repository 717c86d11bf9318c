"""The seam to a vendor: above it retries, keys, breakers and limits; below it one try over the wire."""

from dataclasses import dataclass
from typing import Literal, Protocol

from nova_workers.engines.turn import Ask, Draft, Response
from nova_workers.errors import EngineErrorKind, EngineFailure

__all__ = ["AttemptFailed", "Cause", "ModelLimits", "NoMetrics", "Provider", "ResilienceMetrics", "Route"]

Cause = Literal["key", "key_for_model", "rate_limit", "transport", "model", "request"]
"""What a failed try tells, by what can help:

- ``key``: the key is refused altogether: another key.
- ``key_for_model``: it may not use this model: another key, then another model.
- ``rate_limit``: this key and model are over a limit: another key, then another model, then time.
- ``transport``: the provider or the way to it is out of order: time, then another model.
- ``model``: there is no such model: another model.
- ``request``: nothing helps; the same request fails everywhere.
"""


class AttemptFailed(EngineFailure):
    """A try failed in a way that the seam understands. `Provider` raises it; what leaves the turn is the same object.

    Attributes:
        cause: What can help.
        retry_after_s: What the provider asks to wait, None where it does not say.
    """

    def __init__(
        self,
        message: str,
        /,
        *,
        kind: EngineErrorKind,
        retryable: bool,
        cause: Cause,
        retry_after_s: float | None = None,
        **fields: object,
    ) -> None:
        super().__init__(message, kind=kind, retryable=retryable, **fields)
        self.cause: Cause = cause
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Route:
    """Which way a try goes: a model, a profile's key, and a cap on the response where the model's window is small."""

    model: str
    profile: str
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """What a model takes and gives in one call; None where it is not known."""

    context_tokens: int | None = None
    output_tokens: int | None = None


class Provider(Protocol):
    """One vendor in one turn."""

    @property
    def name(self) -> str:
        """The vendor's name, as breakers and cool-downs go by it."""
        ...

    @property
    def profiles(self) -> tuple[str, ...]:
        """The credential profiles in order of preference; at least one."""
        ...

    async def attempt(self, route: Route, ask: Ask, draft: Draft) -> Response:
        """Try once to get a response, streaming it through `draft`. May be cancelled at any await.

        With `Draft.begin` it says that the response begins: that decides whether the model is well. What is said of
        none counts as begun when it is whole.

        Raises:
            AttemptFailed: There is no response, and something may help.
            EngineFailure: There is no response, and nothing helps.
        """
        ...

    async def estimate_tokens(self, ask: Ask) -> int:
        """Return about how many tokens the model has to read for `ask`."""
        ...

    def limits(self, model: str) -> ModelLimits:
        """Return what is known of a model."""
        ...


class ResilienceMetrics(Protocol):
    """What is counted; `observability.metrics.Metrics` has this shape."""

    def record_model_retry(self, model: str, cause: str) -> None:
        """A try failed and is made again."""
        ...

    def record_cooldown(self, profile: str, reason: str) -> None:
        """A key was put to rest."""
        ...

    def record_fallback(self, model: str, fallback: str) -> None:
        """A turn went on with another model."""
        ...

    def set_breaker_open(self, model: str, *, is_open: bool) -> None:
        """What this process last heard of a model's breaker."""
        ...

    def observe_rate_limit_wait(self, model: str, waited_s: float) -> None:
        """A call stood in line for the rate limit."""
        ...


class NoMetrics:
    """Counts nothing."""

    def record_model_retry(self, model: str, cause: str) -> None:
        """Count nothing."""

    def record_cooldown(self, profile: str, reason: str) -> None:
        """Count nothing."""

    def record_fallback(self, model: str, fallback: str) -> None:
        """Count nothing."""

    def set_breaker_open(self, model: str, *, is_open: bool) -> None:
        """Set nothing."""

    def observe_rate_limit_wait(self, model: str, waited_s: float) -> None:
        """Observe nothing."""
