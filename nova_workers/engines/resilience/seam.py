"""The seam to a vendor: above it retries, keys, breakers and limits; below it one attempt over the wire."""

from dataclasses import dataclass
from typing import Literal, Protocol

from nova_workers.base.errors import EngineErrorKind, EngineFailure
from nova_workers.contracts.usage import CallBound
from nova_workers.engines import bounds
from nova_workers.engines.turn import Ask, Draft, Response

__all__ = ["AttemptFailed", "Cause", "ModelLimits", "NoMetrics", "Provider", "ResilienceMetrics", "Route"]

Cause = Literal["no_key", "key", "quota", "key_for_model", "rate_limit", "transport", "model", "request"]
"""Why an attempt failed, and what can help:

- ``no_key``: this worker has no key; another provider's model, or another worker.
- ``key``: the key is refused; another key.
- ``quota``: the key's account may not spend more; another key.
- ``key_for_model``: the key may not use this model; another key, then another model.
- ``rate_limit``: this key and model are over a limit; another key, then another model, then waiting.
- ``transport``: the provider or the network fails; waiting, then another model.
- ``model``: there is no such model; another model.
- ``request``: nothing; the same request fails everywhere.
"""


class AttemptFailed(EngineFailure):
    """A classified failure of an attempt, raised by `Provider`.

    Attributes:
        cause: The cause, which determines what can help.
        retry_after_s: The provider's requested wait, within the bounds; None if it gives none.
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
    ) -> None:
        super().__init__(message, kind=kind, retryable=retryable)
        self.cause: Cause = cause
        self.retry_after_s = None if retry_after_s is None else bounds.wait_s(retry_after_s)


@dataclass(frozen=True, slots=True)
class Route:
    """The route of an attempt: a model, a profile's key, and a cap on the response if the model's window is small."""

    model: str
    profile: str
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """Limits of a model's context and output; None if unknown."""

    context_tokens: int | None = None
    output_tokens: int | None = None


class Provider(Protocol):
    """One vendor in one turn."""

    @property
    def name(self) -> str:
        """The vendor's name, which identifies it in breakers and cool-downs."""
        ...

    def vendor(self, model: str) -> str:
        """Return the name of the provider that serves a model, as people know it."""
        ...

    def profiles(self, model: str) -> tuple[str, ...]:
        """Return the credential profiles for a model in order of preference; at least one."""
        ...

    async def attempt(self, route: Route, ask: Ask, draft: Draft) -> Response:
        """Make one attempt to get a response, streaming it through `draft`. May be canceled at any await.

        It calls `Draft.begin` when the response begins, which proves that the model works. Otherwise a response counts
        as begun when it is complete.

        Raises:
            AttemptFailed: There is no response, and something may help.
            EngineFailure: There is no response, and nothing helps.
        """
        ...

    async def estimate_tokens(self, ask: Ask) -> int:
        """Return an estimate of the tokens that the model reads for `ask`."""
        ...

    async def bound(self, ask: Ask, model: str) -> CallBound:
        """Return the most that an attempt uses, as far as it is known before. The least answer is not set."""
        ...

    def limits(self, model: str) -> ModelLimits:
        """Return the known limits of a model."""
        ...


class ResilienceMetrics(Protocol):
    """Metrics of resilience; `observability.metrics.Metrics` implements them."""

    def record_model_retry(self, model: str, cause: str) -> None:
        """Record that an attempt failed and is retried."""
        ...

    def record_cooldown(self, profile: str, reason: str) -> None:
        """Record that a cool-down of a key began."""
        ...

    def record_fallback(self, model: str, fallback: str) -> None:
        """Record that a turn continued with another model."""
        ...

    def set_breaker_open(self, model: str, *, is_open: bool) -> None:
        """Record the state of a model's breaker as last seen by this process."""
        ...

    def observe_rate_limit_wait(self, model: str, waited_s: float) -> None:
        """Record that a call waited for the rate limit."""
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
