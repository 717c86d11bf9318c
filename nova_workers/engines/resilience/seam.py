"""The seam to a vendor: above it retries, keys, breakers and limits; below it one attempt over the wire."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from nova_workers.base.errors import EngineErrorKind, EngineFailure
from nova_workers.base.vocabulary import OutageReason
from nova_workers.contracts.usage import CallBound
from nova_workers.engines import bounds
from nova_workers.engines.resilience.health import CooldownReason
from nova_workers.engines.turn import Ask, Draft, Response

Cause = Literal["no_key", "key", "quota", "key_for_model", "rate_limit", "transport", "model", "request"]
"""Why an attempt failed. What can help is in `REMEDIES`.

- ``no_key``: this worker has no key.
- ``key``: the key is refused.
- ``quota``: the key's account may not spend more.
- ``key_for_model``: the key may not use this model.
- ``rate_limit``: this key and model are over a limit.
- ``transport``: the provider or the network fails.
- ``model``: there is no such model.
- ``request``: the same request fails everywhere.
"""


@dataclass(frozen=True, slots=True)
class Remedy:
    """What can help after a failure.

    Attributes:
        outage: What the failure says about the provider, for a run that waits; None: nothing.
        cools: Why the key rests; None: it does not.
        of_one_model: Whether that holds for the model alone, and not for all models of the key.
        model: Which other model may succeed: any, one with other keys, or none.
        retried: Whether the model is called again, with another key or after a pause.
    """

    outage: OutageReason | None
    cools: CooldownReason | None = None
    of_one_model: bool = False
    model: Literal["any", "of_other_keys", "none"] = "any"
    retried: bool = True


REMEDIES: Final[Mapping[Cause, Remedy]] = {
    "no_key": Remedy("key_missing", model="of_other_keys", retried=False),
    "key": Remedy("key_refused", cools="auth", model="of_other_keys"),
    "quota": Remedy("quota", cools="auth", model="of_other_keys"),
    "key_for_model": Remedy("key_refused", cools="auth", of_one_model=True),
    "rate_limit": Remedy("rate_limit", cools="rate_limit", of_one_model=True),
    "transport": Remedy("down", of_one_model=True),
    "model": Remedy("model_missing", of_one_model=True, retried=False),
    "request": Remedy(None, model="none", retried=False),
}


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

    @property
    def remedy(self) -> Remedy:
        """What can help."""
        return REMEDIES[self.cause]


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
