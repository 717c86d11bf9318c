"""Gets a response despite exhausted keys, network failures and models that are down.

Remedies are tried in this order, within one step and invisible to the turn:

1. another key, at once (the failed key cools down for all workers);
2. time: a few retries after pauses, or a short wait for a cool-down or a breaker: seconds, as the turn keeps its slot;
3. another model of the chain, as soon as only waiting would be left, or retries have failed. The turn stays with that
   model, because its prompt cache is filled there.

If nothing is left, the failure says which provider cannot be used, and why (`Outage`): the run can wait for that.

A response that broke off after a reader saw some of it is requested again only if that part can be retracted
(`Draft.restartable`); otherwise the step fails with a retryable error. So no client ever shows the beginning of one
response and the end of another.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import structlog

from nova_workers.base.errors import EngineFailure, Outage
from nova_workers.contracts.engine import EngineOptions
from nova_workers.contracts.usage import Reservation, TokenUsage
from nova_workers.engines.resilience.health import Cooldown, CooldownReason, Failure, Health
from nova_workers.engines.resilience.limiter import Grant
from nova_workers.engines.resilience.seam import AttemptFailed, Provider, Route
from nova_workers.engines.resilience.shared import Call, Resilience
from nova_workers.engines.turn import Ask, Draft, Response, model_span

_log = structlog.get_logger(__name__)

_WHY: dict[CooldownReason, str] = {"auth": "refused", "rate_limit": "over its rate limit"}
_RECHECK_AFTER_S = 1.0
"""After waiting this long for the rate limit, a call checks the model's health again."""
_RETRIES_BEFORE_FALLBACK = 2
"""Retries of a failing model if there is another one that can continue."""
_RECHECK_WAIT_S = 5.0
"""During a longer wait for a key or a model, a call checks this often whether it still has to wait."""
_SMALLEST_ANSWER_TOKENS = 1_024
"""A model whose window leaves less than this for the answer is not used as a fallback, nor is one called whose cost
leaves less."""


@dataclass(slots=True)
class _Patience:
    """The retries and waits of a step with one model so far."""

    retries: int = 0
    paused_s: float = 0.0
    failed: set[str] = field(default_factory=set[str])
    """Profiles that were refused or over their limit; using one of them again counts as a retry."""
    last: EngineFailure | None = None
    profile: str | None = None
    """The profile of the last attempt."""
    noticed: bool = False
    """Whether the reader knows of a pause."""


@dataclass(frozen=True, slots=True)
class _Permit:
    """Permission for one attempt: of the rate limit, and of the budgets that the turn shares."""

    grant: Grant
    reservation: Reservation | None = None

    async def settle(self, usage: TokenUsage) -> None:
        self.grant.settle(usage)
        if self.reservation is not None:
            await self.reservation.settle(usage)

    def drop(self, usage: TokenUsage) -> None:
        """End a reservation that is not settled, since the attempt was stopped."""
        if self.reservation is not None:
            self.reservation.drop(usage)


class ResilientResponder:
    """Implements the turn's `Responder` over a `Provider`. One per turn."""

    def __init__(
        self,
        provider: Provider,
        models: Sequence[str],
        resilience: Resilience,
        options: EngineOptions,
    ) -> None:
        """Set up the responder.

        Args:
            provider: The turn's provider.
            models: Its model, followed by the fallbacks.
            resilience: The process's shared state.
            options: The turn's. Without a conversation, the turn is one of its own; in its allowance each attempt is
                reserved.
        """
        self._provider = provider
        self._models = list(dict.fromkeys(models))
        self._shared = resilience
        self._policy = resilience.policy
        self._conversation = options.conversation or secrets.token_hex(8)
        self._allowance = options.allowance
        self._fell_back = False

    async def respond(self, ask: Ask, draft: Draft) -> Response:
        """Get the model's next response. See `nova_workers.engines.turn.Responder`."""
        while True:
            model, patience = self._models[0], _Patience()
            try:
                with model_span(self._provider.vendor(model), model, ask, draft) as call:
                    while True:
                        async with self._admitted(model, ask, draft, patience) as (route, permit):
                            call.attempts += 1
                            response = await self._provider.attempt(route, ask, draft)
                            draft.begin()
                            await permit.settle(response.usage)
                            call.response = response
                            return response
            except AttemptFailed as failure:
                helps = draft.restartable and self._another_model_helps(failure)
                if not helps or not await self._another_model(ask, failure):
                    failure.outage = self._outage(failure, patience)
                    raise
                self._fall_back(failure)

    @asynccontextmanager
    async def _admitted(
        self, model: str, ask: Ask, draft: Draft, patience: _Patience
    ) -> AsyncGenerator[tuple[Route, _Permit]]:
        """Wait until the block may make one attempt. Suppresses its failure if the attempt is to be repeated.

        Raises:
            AttemptFailed: No attempt, or no further attempt, is possible with this model.
        """
        while True:
            profiles, health = await self._admission(model, ask, patience, draft)
            call = Call(model, self._conversation, health.breaker == "probe", patience.retries > 0)
            with self._shared.admitted(call):
                started_s = self._shared.clock()
                route, permit = await self._permit(model, profiles, ask, draft)
                waited_long = self._shared.clock() - started_s > _RECHECK_AFTER_S
                # A probe would only find its own probe there.
                if waited_long and not call.is_probe and not await self._is_open(route):
                    # The key or the model became unavailable while the call waited.
                    await permit.settle(TokenUsage())
                    continue
                # Not earlier: if no new attempt follows, the text that the reader saw stays valid.
                draft.restart()
                # A model that begins to answer works, however long the answer takes.
                draft.when_begun(partial(self._shared.answered, call))
                try:
                    yield route, permit
                except EngineFailure as failure:
                    await permit.settle(draft.usage)
                    if not isinstance(failure, AttemptFailed):
                        raise
                    failed = failure
                    await self._learn(route, failure, call, patience)
                else:
                    return
                finally:
                    permit.drop(draft.usage)
            await self._pause(route, failed, patience, ask, draft)
            return

    async def _admission(self, model: str, ask: Ask, patience: _Patience, draft: Draft) -> tuple[list[str], Health]:
        """Wait until the model may be called, and return the profiles that may be used."""
        while True:
            health = await self._shared.health.admit(model, self._provider.profiles(model), self._conversation)
            if health.wait_s:
                self._shared.metrics.set_breaker_open(model, is_open=True)
                broken = _broken(model, patience)
                await self._wait(health.wait_s, broken, ask, patience, draft)
                continue
            profiles = [profile for profile in self._provider.profiles(model) if profile not in health.cooling]
            if profiles:
                return profiles, health
            spent = _spent(self._provider.name, model, health.cooling, patience, self._shared.clock())
            patience.profile = patience.profile or next(iter(health.cooling))
            limited = [rest.until_s for rest in health.cooling.values() if rest.reason == "rate_limit"]
            if not limited or patience.retries >= self._policy.max_retries:
                rests_until_s = min(limited or [rest.until_s for rest in health.cooling.values()])
                spent.retry_after_s = max(0.0, rests_until_s - self._shared.clock())
                raise spent
            wait_s = max(0.0, min(limited) - self._shared.clock())
            await self._wait(wait_s, spent, ask, patience, draft)

    async def _is_open(self, route: Route) -> bool:
        profiles = self._provider.profiles(route.model)
        health = await self._shared.health.admit(route.model, profiles, self._conversation)
        return not health.wait_s and route.profile not in health.cooling

    async def _wait(self, wait_s: float, failure: AttemptFailed, ask: Ask, patience: _Patience, draft: Draft) -> None:
        """Wait; raise `failure` if another model can continue, or the wait would be too long."""
        if patience.paused_s + wait_s > self._policy.patience_s or await self._another_model(ask, failure):
            failure.retry_after_s = wait_s
            raise failure
        if wait_s > _RECHECK_WAIT_S:
            # An operator may clear the rest, or the model may answer another call.
            wait_s = _RECHECK_WAIT_S
        else:
            # All waiting calls resume at the same time; jitter spreads their requests.
            wait_s += min(0.25, wait_s / 10) * self._shared.spread()
        await self._sleep(wait_s, failure, patience, draft)

    async def _sleep(self, pause_s: float, failure: AttemptFailed, patience: _Patience, draft: Draft) -> None:
        patience.paused_s += pause_s
        outage = self._outage(failure, patience)
        if outage is not None and not patience.noticed and patience.paused_s >= self._policy.notice_after_s:
            patience.noticed = True
            draft.await_provider(outage, failure.message, pause_s)
        await asyncio.sleep(pause_s)

    def _outage(self, failure: AttemptFailed, patience: _Patience) -> Outage | None:
        remedy = failure.remedy
        if remedy.outage is None:
            return None
        model = self._models[0]
        return Outage(
            self._provider.vendor(model),
            remedy.outage,
            None if failure.cause == "model" else patience.profile,
            model if remedy.of_one_model else None,
            failure.retry_after_s,
        )

    async def _permit(self, model: str, profiles: list[str], ask: Ask, draft: Draft) -> tuple[Route, _Permit]:
        """Wait for the rate limit, and then for the budgets that the turn shares."""
        route, grant = await self._grant(model, profiles, ask)
        if self._allowance is None:
            return route, _Permit(grant)
        bound = await self._provider.bound(ask, model)
        wanted = bound.output_tokens if route.max_tokens is None else min(bound.output_tokens, route.max_tokens)
        bound = replace(bound, output_tokens=wanted, least_output_tokens=min(wanted, _SMALLEST_ANSWER_TOKENS))
        try:
            reservation = await self._allowance.reserve(bound)
        except BaseException:
            grant.settle(TokenUsage())
            raise
        draft.limit = reservation.limit
        if reservation.limit is not None:
            route = replace(route, max_tokens=reservation.output_tokens)
        return route, _Permit(grant, reservation)

    async def _grant(self, model: str, profiles: list[str], ask: Ask) -> tuple[Route, Grant]:
        limiter = self._shared.limiter
        cap = await self._cap(model, ask) if self._fell_back else None
        if not limiter.limits(model):
            return Route(model, profiles[0], cap), Grant(profiles[0])
        started_s = self._shared.clock()
        grant = await limiter.take(profiles, model, await self._provider.estimate_tokens(ask))
        self._shared.metrics.observe_rate_limit_wait(model, self._shared.clock() - started_s)
        return Route(model, grant.profile, cap), grant

    async def _learn(self, route: Route, failure: AttemptFailed, call: Call, patience: _Patience) -> None:
        """Share with all workers what the failure shows about the key or the model."""
        if failure.cause != "transport" and call.is_probe:
            # It is no verdict on the model, which the next key has to probe.
            await self._shared.health.release(route.model, self._conversation)
        reason = failure.remedy.cools
        if reason is not None:
            await self._cool(route, failure, reason)
        elif failure.cause == "transport" and (call.is_probe or patience.retries >= min(1, self._policy.max_retries)):
            # A request whose first retry succeeds is no sign of an outage.
            await self._count_failure(route.model, failure)
        call.is_probe = False

    async def _count_failure(self, model: str, failure: AttemptFailed) -> None:
        is_open = await self._shared.health.fail(model, Failure(self._conversation, failure.message))
        self._shared.metrics.set_breaker_open(model, is_open=is_open)
        if is_open:
            _log.warning("model_breaker_open", model=model, error=failure.message)

    async def _cool(self, route: Route, failure: AttemptFailed, reason: CooldownReason) -> None:
        model = route.model if failure.remedy.of_one_model else None
        rest_s = await self._shared.health.cool(
            route.profile, model, reason, failure.retry_after_s, error=failure.message
        )
        self._shared.metrics.record_cooldown(route.profile, reason)
        _log.warning(
            "model_profile_rests", profile=route.profile, model=model, rest_s=round(rest_s, 3), error=failure.message
        )

    async def _pause(self, route: Route, failure: AttemptFailed, patience: _Patience, ask: Ask, draft: Draft) -> None:
        """Prepare the next attempt, or raise `failure` if there is none."""
        patience.last, patience.profile = failure, route.profile
        if failure.cause == "transport" or route.profile in patience.failed:
            patience.retries += 1
        else:
            patience.failed.add(route.profile)
        hopeless = not failure.remedy.retried or patience.retries > self._policy.max_retries
        if hopeless or not draft.restartable:
            raise failure
        if patience.retries > _RETRIES_BEFORE_FALLBACK and await self._another_model(ask, failure):
            raise failure
        pause_s = 0.0
        if failure.cause == "transport":
            pause_s = failure.retry_after_s
            if pause_s is None:
                pause_s = self._policy.backoff(patience.retries, self._shared.spread())
            if patience.paused_s + pause_s > self._policy.patience_s:
                raise failure
        self._shared.metrics.record_model_retry(route.model, failure.cause)
        if failure.cause == "transport":
            _log.info("model_call_again", model=route.model, retry=patience.retries, error=failure.message)
            await self._sleep(pause_s, failure, patience, draft)

    def _another_model_helps(self, failure: AttemptFailed) -> bool:
        if failure.remedy.model != "of_other_keys":
            return failure.remedy.model == "any"
        # A refused key is refused for all its models, but a model of another provider has another key.
        current, *others = self._models
        refused = set(self._provider.profiles(current))
        return any(refused.isdisjoint(self._provider.profiles(model)) for model in others)

    async def _another_model(self, ask: Ask, failure: EngineFailure) -> bool:
        """Drop the models of the chain whose window is too small; return whether one is left."""
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
        """Return the limit of the response's tokens of `model`, given the conversation."""
        limits = self._provider.limits(model)
        if limits.context_tokens is None:
            return limits.output_tokens
        room = max(0, limits.context_tokens - await self._provider.estimate_tokens(ask))
        return room if limits.output_tokens is None else min(room, limits.output_tokens)


def _broken(model: str, patience: _Patience) -> AttemptFailed:
    last = f" The last of them: {patience.last.message}" if patience.last else ""
    return AttemptFailed(
        f"The model {model!r} failed several conversations in a row, and no worker calls it for a while.{last}",
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
    failed = patience.last if isinstance(patience.last, AttemptFailed) else None
    of_key = failed.cause if failed is not None and failed.remedy.model == "of_other_keys" else "key_for_model"
    return AttemptFailed(
        f"No credential profile of {provider!r} can be used for {model!r} now: {rests}.{last}",
        kind="rate_limit" if reasons == {"rate_limit"} else "auth_failure",
        retryable="rate_limit" in reasons,
        cause="rate_limit" if "rate_limit" in reasons else of_key,
    )
