"""Gets a response in spite of keys that are spent, a network that breaks and models that are down.

What helps is tried in this order, within one step and before the turn hears of it:

1. another key, at once (the key rests, for all workers);
2. time: the same again after a pause, a few times; a model whose breaker is open is waited for;
3. another model of the chain, as soon as time alone would be waited for, or has not helped. The turn stays with it: its
   prompt cache is warm there, and going back would pay for another.

A response that broke off after the reader saw some of it is asked for again only if the reader can be told that what it
saw is void (`Draft.restartable`); else the step fails, and says that it may be tried again. So no client ever shows the
beginning of one response and the end of another.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import structlog

from nova_workers.contracts.usage import TokenUsage
from nova_workers.engines.resilience.health import Cooldown, CooldownReason, Health
from nova_workers.engines.resilience.limiter import Grant
from nova_workers.engines.resilience.seam import AttemptFailed, Provider, Route
from nova_workers.engines.resilience.shared import Probe, Resilience
from nova_workers.engines.turn import Ask, Draft, Response
from nova_workers.errors import EngineFailure

__all__ = ["ResilientResponder"]

_log = structlog.get_logger(__name__)

_WHY: dict[CooldownReason, str] = {"auth": "refused", "rate_limit": "over its rate limit"}
_ANOTHER_MODEL_HELPS = {"key_for_model", "rate_limit", "transport", "model"}
_NEWS_S = 1.0
"""After this time in line a call asks again whether it may go."""
_SMALLEST_ANSWER_TOKENS = 1_024
"""A model with less room than this beside the conversation is no alternative."""


@dataclass(slots=True)
class _Patience:
    """What is left to a step on one model."""

    retries: int = 0
    paused_s: float = 0.0
    failed: set[str] = field(default_factory=set[str])
    """Profiles that were refused or over their limit; again with one of them is a retry."""
    last: EngineFailure | None = None


class ResilientResponder:
    """Implements the turn's `Responder` over a `Provider`. One a turn."""

    def __init__(self, provider: Provider, models: Sequence[str], resilience: Resilience) -> None:
        """Take the turn's provider, its models (the wanted one, then its fallbacks), and what the process shares."""
        self._provider = provider
        self._models = list(dict.fromkeys(models))
        self._shared = resilience
        self._policy = resilience.policy
        self._fell_back = False

    async def respond(self, ask: Ask, draft: Draft) -> Response:
        """Get the model's next response. See `nova_workers.engines.turn.Responder`."""
        patience = _Patience()
        while True:
            try:
                async with self._admitted(self._models[0], ask, draft, patience) as (route, grant):
                    response = await self._provider.attempt(route, ask, draft)
                    draft.begin()
                    grant.settle(response.usage)
                    return response
            except AttemptFailed as failure:
                helps = failure.cause in _ANOTHER_MODEL_HELPS and draft.restartable
                if not helps or not await self._another_model(ask, failure):
                    raise
                self._fall_back(failure)
                patience = _Patience()

    @asynccontextmanager
    async def _admitted(
        self, model: str, ask: Ask, draft: Draft, patience: _Patience
    ) -> AsyncGenerator[tuple[Route, Grant]]:
        """Wait until one try may be made, which the block makes. Swallows its failure if it is to be made again.

        Raises:
            AttemptFailed: This model cannot be tried, or not again.
        """
        while True:
            profiles, health = await self._admission(model, ask, patience)
            with self._shared.probing(model, health) as probe:
                started_s = self._shared.clock()
                route, grant = await self._grant(model, profiles, ask)
                stood_in_line = self._shared.clock() - started_s > _NEWS_S
                # A probe would only meet itself there.
                if stood_in_line and not health.probe and not await self._is_open(route):
                    # While the call stood in line the key or the model went out of order.
                    grant.settle(TokenUsage())
                    continue
                # Not before: as long as nothing comes anew, what the reader saw is what there is.
                draft.restart()
                # A model that begins to answer is well, however long the answer takes.
                draft.when_begun(partial(self._shared.answered, model, probe))
                try:
                    yield route, grant
                except EngineFailure as failure:
                    grant.settle(draft.usage)
                    if not isinstance(failure, AttemptFailed):
                        raise
                    failed = failure
                    await self._learn(route, failure, probe)
                else:
                    return
            await self._pause(route, failed, patience, draft)
            return

    async def _admission(self, model: str, ask: Ask, patience: _Patience) -> tuple[list[str], Health]:
        """Wait until the model may be called, and return the profiles that may be used."""
        while True:
            health = await self._shared.health.admit(model, self._provider.profiles)
            if health.wait_s:
                self._shared.metrics.set_breaker_open(model, is_open=True)
                broken = _broken(model, patience)
                await self._wait(health.wait_s, self._policy.breaker_patience_s, broken, ask, patience)
                continue
            profiles = [profile for profile in self._provider.profiles if profile not in health.cooling]
            if profiles:
                return profiles, health
            spent = _spent(self._provider.name, model, health.cooling, patience, self._shared.clock())
            limited = [rest.until_s for rest in health.cooling.values() if rest.reason == "rate_limit"]
            if not limited or patience.retries >= self._policy.max_retries:
                raise spent
            wait_s = max(0.0, min(limited) - self._shared.clock())
            await self._wait(wait_s, self._policy.cooldown_patience_s, spent, ask, patience)

    async def _is_open(self, route: Route) -> bool:
        health = await self._shared.health.admit(route.model, self._provider.profiles)
        return not health.wait_s and route.profile not in health.cooling

    async def _wait(
        self, wait_s: float, longest_s: float, failure: AttemptFailed, ask: Ask, patience: _Patience
    ) -> None:
        """Wait for better times; raise `failure` where another model can go on, or it would take too long."""
        if patience.paused_s + wait_s > longest_s or await self._another_model(ask, failure):
            raise failure
        # All who wait are let go at the same time; a little spread keeps them from asking in the same moment.
        wait_s += min(0.25, wait_s / 10) * self._shared.spread()
        patience.paused_s += wait_s
        await asyncio.sleep(wait_s)

    async def _grant(self, model: str, profiles: list[str], ask: Ask) -> tuple[Route, Grant]:
        limiter = self._shared.limiter
        cap = await self._cap(model, ask) if self._fell_back else None
        if not limiter.limits(model):
            return Route(model, profiles[0], cap), Grant(profiles[0])
        started_s = self._shared.clock()
        grant = await limiter.take(profiles, model, await self._provider.estimate_tokens(ask))
        self._shared.metrics.observe_rate_limit_wait(model, self._shared.clock() - started_s)
        return Route(model, grant.profile, cap), grant

    async def _learn(self, route: Route, failure: AttemptFailed, probe: Probe) -> None:
        """Tell all workers what the failure says of the key or the model."""
        if failure.cause != "transport" and not probe.reported:
            # Of whether the model is well it says nothing; the next key is to try it.
            await self._shared.health.release(route.model)
        match failure.cause:
            case "key" | "key_for_model":
                model = route.model if failure.cause == "key_for_model" else None
                await self._cool(route, model, failure, rate_limited=False)
            case "rate_limit":
                await self._cool(route, route.model, failure, rate_limited=True)
            case "transport":
                is_open = await self._shared.health.fail(route.model)
                self._shared.metrics.set_breaker_open(route.model, is_open=is_open)
                if is_open:
                    _log.warning("model_breaker_open", model=route.model, error=failure.message)
            case _:
                pass
        probe.reported = True

    async def _cool(self, route: Route, model: str | None, failure: AttemptFailed, *, rate_limited: bool) -> None:
        reason = "rate_limit" if rate_limited else "auth"
        rest_s = await self._shared.health.cool(route.profile, model, reason, failure.retry_after_s)
        self._shared.metrics.record_cooldown(route.profile, reason)
        _log.warning(
            "model_profile_rests", profile=route.profile, model=model, rest_s=round(rest_s, 3), error=failure.message
        )

    async def _pause(self, route: Route, failure: AttemptFailed, patience: _Patience, draft: Draft) -> None:
        """Make ready for the next try, or raise `failure` if there is none."""
        patience.last = failure
        if failure.cause == "transport" or route.profile in patience.failed:
            patience.retries += 1
        else:
            patience.failed.add(route.profile)
        hopeless = failure.cause in {"model", "request"} or patience.retries > self._policy.max_retries
        if hopeless or not draft.restartable:
            raise failure
        self._shared.metrics.record_model_retry(route.model, failure.cause)
        if failure.cause == "transport":
            pause_s = self._policy.backoff(patience.retries, self._shared.spread())
            if failure.retry_after_s is not None:
                pause_s = min(failure.retry_after_s, self._policy.retry_after_cap_s)
            _log.info("model_call_again", model=route.model, retry=patience.retries, error=failure.message)
            await asyncio.sleep(pause_s)

    async def _another_model(self, ask: Ask, failure: EngineFailure) -> bool:
        """Drop the models of the chain that do not take the conversation; return whether one is left."""
        while len(self._models) > 1:
            cap = await self._cap(self._models[1], ask)
            if cap is None or cap >= _SMALLEST_ANSWER_TOKENS:
                return True
            skipped = self._models.pop(1)
            _log.warning("model_fallback_too_small", model=skipped, error=failure.message)
        return False

    def _fall_back(self, failure: EngineFailure) -> None:
        left = self._models.pop(0)
        self._fell_back = True
        self._shared.metrics.record_fallback(left, self._models[0])
        _log.warning("model_fallback", model=left, fallback=self._models[0], error=failure.message)

    async def _cap(self, model: str, ask: Ask) -> int | None:
        """Return the most tokens that a response of `model` can have, beside the conversation."""
        limits = self._provider.limits(model)
        if limits.context_tokens is None:
            return limits.output_tokens
        room = max(0, limits.context_tokens - await self._provider.estimate_tokens(ask))
        return room if limits.output_tokens is None else min(room, limits.output_tokens)


def _broken(model: str, patience: _Patience) -> AttemptFailed:
    last = f" The last of them: {patience.last.message}" if patience.last else ""
    return AttemptFailed(
        f"The model {model!r} failed several times in a row for the whole fleet, which waits until it is well.{last}",
        kind="model_error",
        retryable=True,
        cause="transport",
    )


def _spent(
    provider: str, model: str, cooling: Mapping[str, Cooldown], patience: _Patience, now_s: float
) -> AttemptFailed:
    rests = ", ".join(
        f"{profile!r} ({_WHY[rest.reason]}, rests {rest.until_s - now_s:.0f} s)" for profile, rest in cooling.items()
    )
    reasons = {rest.reason for rest in cooling.values()}
    last = f" The last answer: {patience.last.message}" if patience.last else ""
    refused = isinstance(patience.last, AttemptFailed) and patience.last.cause == "key"
    return AttemptFailed(
        f"No credential profile of {provider!r} can be used for {model!r} now: {rests}.{last}",
        kind="rate_limit" if reasons == {"rate_limit"} else "auth_failure",
        retryable="rate_limit" in reasons,
        cause="rate_limit" if "rate_limit" in reasons else "key" if refused else "key_for_model",
    )
