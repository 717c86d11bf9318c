"""Holds runs while their model provider cannot be used, and lets them go on when it can.

One run of an outage tries again after a pause, and the others of that outage wait for its outcome: however many runs
wait, the provider gets one request. What a process learned of an outage it uses for runs that it has not claimed: they
are held too, without a try.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from datetime import datetime
from math import ceil
from typing import Any

import structlog

from nova_workers.base.clock import Clock
from nova_workers.base.config import RunSettings
from nova_workers.base.errors import Unavailable
from nova_workers.base.stopping import stop_tasks
from nova_workers.base.vocabulary import OutageReason
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.engine import EngineError
from nova_workers.contracts.runs import Claim, Doorbell
from nova_workers.contracts.user_agents import CODE_ENGINE
from nova_workers.contracts.waits import HoldDetail, detail_of
from nova_workers.domain.runs.sql import holds as ledger
from nova_workers.domain.runs.sql.claim import Unusable
from nova_workers.domain.streams.rules.publisher import EventPublisher
from nova_workers.ledger.database import Connection
from nova_workers.ledger.work import Work

_log = structlog.get_logger(__name__)

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
_LONGEST_ASKED_PAUSE_S = 300.0
"""Limit of a pause that the provider asks for."""
_LEAST_PAUSE_S = 0.2
_PROBE_S = 15.0
"""How long the other runs of an outage wait for the outcome of a try: longer than the patience within a turn."""
_RELEASED = 500
"""Runs that are released in one statement. With more, the rest follows with the next."""
_ELSEWHERE_S = 1.0
"""After this time a doorbell that this worker cannot answer is rung again: another worker may have the key."""
_RINGS_ELSEWHERE = 5
"""How often; then the reconciler rings."""
_QUIET_S = 45.0
"""How much later than usual it does."""
_MOST_REMEMBERED = 10_000
"""Runs whose doorbells are counted, and models whose answers are known."""
_TRIES_ALONE = 5
"""After as many tries a provider that answers other conversations is not down: the run fails."""
_TICK_S = 0.1
"""Tries that are due within this time are released in one statement."""


@dataclass(frozen=True, slots=True)
class HoldPlan:
    """How a run is to be held.

    Attributes:
        detail: What for.
        pause_s: Until the next try; None: another worker may execute it at once.
        afresh: Whether its time to wait begins now.
    """

    detail: HoldDetail
    pause_s: float | None
    afresh: bool


@dataclass(slots=True)
class _Known:
    """An outage as this process knows it."""

    detail: HoldDetail
    until_s: float | None
    """None: this worker lacks the key, until it is restarted."""


def model_of(claim: Claim) -> str | None:
    """Return the model that determines a run's provider, as the ledger's `MODEL_OF` does; None if it is elsewhere."""
    if claim.source == "work_order" or claim.place is not None:
        return None
    agent: AgentSpec = claim.agent
    if agent.engine == CODE_ENGINE:
        return None
    return f"{agent.engine or ''} {claim.model or agent.model or ''}"


class Holds:
    """Decides about holds, and releases them. One object per process."""

    def __init__(
        self,
        work: Work,
        publisher: EventPublisher,
        settings: RunSettings,
        clock: Clock,
        *,
        spread: Callable[[], float] = random.random,
    ) -> None:
        self._work = work
        self._publisher = publisher
        self._settings = settings
        self._clock = clock
        self._spread = spread
        self._known: dict[str, _Known] = {}
        """The holds, by the model that determines a run's provider."""
        self._suspected: dict[str, str] = {}
        """The thread that first found no answer, likewise: another one makes it known."""
        self._answered: dict[str, tuple[str, datetime]] = {}
        """The thread that last got an answer, and when, likewise."""
        self._warned: set[tuple[str, OutageReason, str | None]] = set()
        self._refused: dict[str, int] = {}
        """How often a run was refused that another worker may execute."""
        self._timers: dict[int, asyncio.TimerHandle] = {}
        """The timers by their time in ticks."""
        self._tasks: set[asyncio.Task[None]] = set()

    def plan(self, claim: Claim, error: EngineError, *, progressed: bool) -> HoldPlan | EngineError:
        """Return how a run is to be held after a failure, or the error with which it fails.

        Args:
            claim: The run.
            error: Why its turn cannot go on.
            progressed: Whether the model answered in this attempt.
        """
        outage = error.outage
        if outage is None:
            return error
        began = None if progressed else claim.held_since
        waited_s = 0.0 if began is None else (self._clock.now() - began).total_seconds()
        left_s = self._patience_s(claim) - waited_s
        if left_s <= 0:
            return _too_late(error, waited_s)
        tries = claim.held.tries + 1 if claim.held is not None and began is not None else 1
        if outage.reason == "down" and tries > _TRIES_ALONE and self._answers_others(claim, began):
            return _too_late(error, waited_s)
        detail = detail_of(outage, error.message, tries=tries)
        if outage.reason == "key_missing" and model_of(claim) is not None:
            return HoldPlan(detail, None, began is None)
        pause_s = self._pause_s(tries, outage.retry_after_s)
        # A try at the end of its patience, if the next one would be later.
        return HoldPlan(detail, max(min(pause_s, left_s), _LEAST_PAUSE_S), began is None)

    async def learn(self, claim: Claim, plan: HoldPlan) -> None:
        """Use what a held run shows for others: those that would meet the same outage are held without a try.

        A provider may fail because of one conversation: without an answer, two of them must have had none.
        """
        detail, key = plan.detail, model_of(claim)
        if detail.outage == "down" and (
            key is None or self._suspected.setdefault(key, claim.thread_id) == claim.thread_id
        ):
            self.release_after(plan.pause_s or _LEAST_PAUSE_S)
            return
        known = None if key is None else self._known.get(key)
        if key is not None:
            until_s = None if plan.pause_s is None else self._clock.monotonic_s() + plan.pause_s
            self._known[key] = _Known(detail, until_s)
        self._warn(detail)
        if plan.pause_s is None:
            self._ring_later(Doorbell(claim.run_id, claim.thread_id, claim.queue))
            return
        self.release_after(plan.pause_s)
        pause_s = plan.pause_s
        if claim.held is not None:
            await self._write(lambda c: ledger.postpone(c, detail, pause_s=pause_s))
        elif key is not None and known is None:
            await self._write(lambda c: self._hold_alike(c, key, detail, pause_s))

    @property
    def unusable(self) -> tuple[str, ...]:
        """What this worker cannot use now, as `model_of` returns it."""
        if not self._known:
            return ()
        now_s = self._clock.monotonic_s()
        return tuple(key for key, known in self._known.items() if known.until_s is None or known.until_s > now_s)

    async def refuse(self, bell: Doorbell, found: Unusable) -> None:
        """Hold a run that this worker did not claim, since it cannot execute it.

        Raises:
            Unavailable: The database does not answer.
        """
        known = self._known.get(found.model_of)
        if known is None:
            self._work.ring([bell])
            return
        pause_s = None if known.until_s is None else max(known.until_s - self._clock.monotonic_s(), _LEAST_PAUSE_S)
        if pause_s is None:
            await self._refuse_for_others(bell, found.run_id, known.detail)
            return
        async with self._work.database.connection() as connection:
            is_held = await ledger.hold_next(connection, found.run_id, known.detail, pause_s=pause_s)
        if is_held:
            self._publisher.hint([found.run_id])
            self.release_after(pause_s)
        else:
            # Another worker had an answer, and released all; or the run is not there any more.
            self._known.pop(found.model_of, None)
            self._work.ring([bell])

    async def _refuse_for_others(self, bell: Doorbell, run_id: str, detail: HoldDetail) -> None:
        """Leave a run to a worker that has the key, visibly."""
        if len(self._refused) >= _MOST_REMEMBERED:
            self._refused.clear()
        self._refused[run_id] = count = self._refused.get(run_id, 0) + 1
        quiet_s = 0.0 if count <= _RINGS_ELSEWHERE else _QUIET_S
        async with self._work.database.connection() as connection:
            await ledger.hold_next(connection, run_id, detail, pause_s=None, quiet_s=quiet_s)
        if count == 1:
            self._publisher.hint([run_id])
        if not quiet_s:
            self._ring_later(bell)

    def answered(self, claim: Claim) -> None:
        """Release the runs that wait for what a run has just used. Returns at once.

        Called when the model begins to answer. It costs nothing unless the run was held, or an outage is known.
        """
        key = model_of(claim)
        known = None
        if key is not None:
            known = self._known.pop(key, None)
            self._suspected.pop(key, None)
            if len(self._answered) >= _MOST_REMEMBERED:
                self._answered.clear()
            self._answered[key] = (claim.thread_id, self._clock.now())
        detail = claim.held or (None if known is None else known.detail)
        if detail is None:
            return
        for other in [other for other, its in self._known.items() if its.detail.provider == detail.provider]:
            if self._known[other].detail.model in (None, detail.model):
                del self._known[other]
        self._warned = {warned for warned in self._warned if warned[0] != detail.provider}
        self._start(self._release(detail))

    async def release_due(self, *, all_now: bool = False) -> int:
        """Release runs whose next try is due, and those that waited long enough; return how many.

        Args:
            all_now: Whether every outage is tried now.

        Raises:
            Unavailable: The database does not answer; the next pass finds them again.
        """
        settings = self._settings
        async with self._work.begin_statement() as tx:
            bells = await ledger.release_due(
                tx.connection,
                interactive_s=settings.provider_patience_interactive_s,
                background_s=settings.provider_patience_background_s,
                probe_s=_PROBE_S,
                all_now=all_now,
            )
            tx.ring(bells)
        return len(bells)

    def begin(self) -> None:
        """Let one run of each outage try now: this process may have another key."""
        self._start(self._release_due(all_now=True))

    def release_after(self, pause_s: float) -> None:
        """Release what is due after a pause. If this process ends first, the reconciler does it."""
        at = ceil((self._clock.monotonic_s() + pause_s) / _TICK_S)
        if at not in self._timers:
            delay_s = max(at * _TICK_S - self._clock.monotonic_s(), pause_s)
            self._timers[at] = asyncio.get_running_loop().call_later(delay_s, self._on_timer, at)

    async def close(self) -> None:
        """Stop the timers and what they started."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        await stop_tasks(list(self._tasks))

    def _answers_others(self, claim: Claim, since: datetime | None) -> bool:
        """Return whether the same model answered another conversation while a run waited for it."""
        key = model_of(claim)
        last = None if key is None else self._answered.get(key)
        return last is not None and last[0] != claim.thread_id and since is not None and last[1] > since

    def _patience_s(self, claim: Claim) -> float:
        settings = self._settings
        # A work order has a time of its own, which ends its parts.
        is_interactive = claim.queue == "interactive" and claim.source != "work_order"
        return settings.provider_patience_interactive_s if is_interactive else settings.provider_patience_background_s

    def _pause_s(self, tries: int, asked_s: float | None) -> float:
        own_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(tries - 1, 10)) * (0.75 + 0.5 * self._spread())
        return own_s if asked_s is None else min(max(asked_s, _LEAST_PAUSE_S), _LONGEST_ASKED_PAUSE_S)

    def _warn(self, detail: HoldDetail) -> None:
        """Log an outage once, until the provider answers again."""
        key = (detail.provider, detail.outage, detail.model)
        if key not in self._warned:
            self._warned.add(key)
            _log.warning(
                "provider.unusable",
                provider=detail.provider,
                reason=detail.outage,
                profile=detail.profile,
                model=detail.model,
                error=detail.message,
                advice=detail.advice,
            )

    async def _hold_alike(self, connection: Connection, model_of: str, detail: HoldDetail, pause_s: float) -> None:
        self._publisher.hint(await ledger.hold_alike(connection, model_of, detail, pause_s=pause_s))

    async def _write(self, write: Callable[[Connection], Awaitable[object]]) -> None:
        """Write what only saves work: without it the other runs meet the outage themselves."""
        try:
            async with self._work.database.connection() as connection:
                await write(connection)
        except Unavailable as error:
            _log.warning("hold.not_shared", error=error.message)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _release(self, detail: HoldDetail) -> None:
        try:
            while True:
                async with self._work.begin_statement() as tx:
                    bells = await ledger.release(tx.connection, detail.provider, detail.model, limit=_RELEASED)
                    tx.ring(bells)
                if len(bells) < _RELEASED:
                    break
        except Unavailable as error:
            _log.warning("hold.release_left_to_reconciler", provider=detail.provider, error=error.message)
            return
        _log.info("provider.usable", provider=detail.provider, model=detail.model)

    def _ring_later(self, bell: Doorbell) -> None:
        async def ring() -> None:
            await asyncio.sleep(_ELSEWHERE_S)
            self._work.ring([bell])

        self._start(ring())

    def _on_timer(self, at: int) -> None:
        del self._timers[at]
        self._start(self._release_due())

    async def _release_due(self, *, all_now: bool = False) -> None:
        try:
            await self.release_due(all_now=all_now)
        except Unavailable as error:
            _log.warning("hold.release_left_to_reconciler", error=error.message)


def _too_late(error: EngineError, waited_s: float) -> EngineError:
    """Return the error of a run that waited for long enough, or may not wait."""
    if waited_s <= 0:
        return error
    return replace(error, message=f"{error.message} The run waited {waited_s:.0f} s for its model provider.")
