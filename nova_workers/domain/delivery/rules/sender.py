"""The sender: claims due deliveries from the outbox, sends them over their channels and records the results.

The state is in the ledger's rows, so it survives crashes and lost doorbells. Claimed deliveries have leases like those
of runs, which are renewed while their attempts last. Delivery is at least once: after a crash between the receiver's
answer and its record, the row is sent again under the same id.
"""

import asyncio
import random
from collections import Counter
from typing import Final

import structlog

from nova_workers.base.clock import Clock
from nova_workers.base.config import DeliverySettings, RunSettings
from nova_workers.base.errors import DeliveryFailed, NovaError, Unavailable
from nova_workers.base.observability.metrics import Metrics
from nova_workers.contracts.deliveries import DeliveryItem
from nova_workers.domain.delivery.rules.channels import PUSHES, WEBHOOKS, ChannelRoutes
from nova_workers.domain.delivery.rules.routing import InboxRouter
from nova_workers.domain.delivery.rules.settling import Settler
from nova_workers.domain.delivery.sql.leases import release_deliveries, renew_deliveries
from nova_workers.domain.delivery.sql.outbox import claim_deliveries
from nova_workers.domain.runs.rules.work_leases import WorkLeases
from nova_workers.ledger.database import Database

_ROUND_S: Final = 30.0
"""A round stops claiming after this time and ends, to free its worker slot. The caller rings again."""

_log = structlog.get_logger(__name__)


class DeliverySender:
    """Empties the outbox. Any number of senders, in any number of processes, share the rows."""

    def __init__(
        self,
        database: Database,
        settings: DeliverySettings,
        routes: ChannelRoutes,
        *,
        leases: RunSettings,
        clock: Clock,
        metrics: Metrics,
        rng: random.Random | None = None,
    ) -> None:
        """Keep what is handed in; nothing is started.

        Args:
            database: Of the ledger.
            settings: Limits, pauses and number of attempts.
            routes: The channels.
            leases: Their duration, and how often they are renewed.
            clock: Measures durations; due times are the database's.
            metrics: Outcomes and durations.
            rng: Spreads the pauses.
        """
        self._database = database
        self._settings = settings
        self._routes = routes
        self._clock = clock
        self._metrics = metrics
        self._router = InboxRouter(database, routes)
        self._leases = WorkLeases[DeliveryItem](
            database, leases, clock, kind="deliveries", renew=renew_deliveries, release=release_deliveries
        )
        rng = rng or random.Random()  # noqa: S311 - spreads retries, guards nothing
        self._settler = Settler(database, settings, self._leases, rng)
        self._under_way: Counter[str] = Counter()
        self._trying: dict[asyncio.Task[None], DeliveryItem] = {}
        self._claiming = asyncio.Lock()
        self._draining = False

    async def run_due(self) -> int:
        """Route new inbox items, and send due deliveries.

        Continues while something is due, within a time limit. A slow address does not delay others: attempts per
        address are limited, and more are claimed whenever an attempt ends.

        Returns:
            How many items were processed. If it is not 0, there may be more: ring again.

        Raises:
            Unavailable: The database could not be reached. Attempts that had begun have ended; a delivery whose result
                could not be recorded is due again after its lease.
        """
        if self._draining:
            return 0
        done = await self._router.route_due()
        now_s = self._clock.monotonic_s()
        until_s, renew_at_s = now_s + _ROUND_S, now_s + self._leases.renew_s
        mine: set[asyncio.Task[None]] = set()
        failures: list[BaseException] = []
        try:
            while True:
                started, full = await self._start_more(failures, until_s)
                done += len(started)
                mine |= started
                if not mine:
                    break
                # If more may be due, claim as soon as one attempt ends. Otherwise a new delivery rings the doorbell.
                when = asyncio.FIRST_COMPLETED if started or full else asyncio.ALL_COMPLETED
                until_renewal_s = max(0.0, renew_at_s - self._clock.monotonic_s())
                ended, mine = await asyncio.wait(mine, timeout=until_renewal_s, return_when=when)
                if self._clock.monotonic_s() >= renew_at_s:
                    await self._leases.renew([self._trying[task] for task in mine if task in self._trying])
                    renew_at_s = self._clock.monotonic_s() + self._leases.renew_s
                failures += [error for task in ended if not task.cancelled() and (error := task.exception())]
        except asyncio.CancelledError:
            for task in mine:
                task.cancel()
            if mine:
                await asyncio.wait(mine)
            raise
        if failures:
            raise failures[0]
        return done

    def drain(self) -> None:
        """Stop permanently: cancel the attempts in progress and release them. On the loop; returns at once."""
        self._draining = True
        for task in self._trying:
            task.cancel()

    async def close(self) -> None:
        """Close every channel."""
        await self._routes.close()

    async def _start_more(self, failures: list[BaseException], until_s: float) -> tuple[set[asyncio.Task[None]], bool]:
        """Start due deliveries, unless the round is over: it ends at its time, with a drain, and with a failure."""
        if not failures and not self._draining and self._clock.monotonic_s() <= until_s:
            try:
                return await self._start_due()
            except Unavailable as error:
                # The attempts in progress go on, and their leases must be renewed until they end.
                failures.append(error)
        return set(), False

    async def _start_due(self) -> tuple[set[asyncio.Task[None]], bool]:
        """Claim due deliveries up to the limit. Returns the attempts started, and whether the limit was reached."""
        settings, names = self._settings, self._routes.names
        # Serialized, because each claim counts the deliveries of those before it.
        async with self._claiming:
            room = settings.at_once - self._under_way.total()
            if room <= 0:
                return set(), True
            async with self._database.connection() as connection:
                claimed = await claim_deliveries(
                    connection,
                    active_attempts=dict(self._under_way),
                    per_lane=settings.at_once_per_target,
                    rest_after=settings.rest_after_failures,
                    channels=[name for name in names if name not in {WEBHOOKS, PUSHES}],
                    webhooks=WEBHOOKS in names,
                    pushes=PUSHES in names,
                    limit=room,
                    lease=self._leases.duration,
                )
            return {self._start(item) for item in claimed}, False

    def _start(self, item: DeliveryItem) -> asyncio.Task[None]:
        self._under_way[item.target] += 1
        task = asyncio.create_task(self._try(item))
        self._trying[task] = item
        task.add_done_callback(lambda ended: self._ended(ended, item))
        if self._draining:  # since the claim was sent
            task.cancel()
        return task

    def _ended(self, task: asyncio.Task[None], item: DeliveryItem) -> None:
        self._trying.pop(task, None)
        self._under_way[item.target] -= 1
        if not self._under_way[item.target]:
            del self._under_way[item.target]

    async def _try(self, item: DeliveryItem) -> None:
        channel = _channel_of(item)
        started_s = self._clock.monotonic_s()
        try:
            outcome = await self._deliver(channel, item)
        except asyncio.CancelledError:
            await self._leases.release([item])
            self._metrics.deliveries.labels(channel, "released").inc()
            raise
        self._metrics.delivery_duration_s.labels(channel).observe(self._clock.monotonic_s() - started_s)
        self._metrics.deliveries.labels(channel, outcome).inc()

    async def _deliver(self, channel: str, item: DeliveryItem) -> str:
        if item.attempt > self._settler.most_attempts:
            return await self._settler.fail_finally(item, "The worker was lost in every attempt.")
        try:
            # Above the channel's own time limit, whose error has more detail.
            async with asyncio.timeout(self._settings.timeout_s + 5):
                status = await self._routes.channel(channel).deliver(item)
        except DeliveryFailed as failed:
            return await self._settler.failed(item, failed)
        except TimeoutError:
            return await self._settler.failed(item, DeliveryFailed("There was no answer in time.", retryable=True))
        except NovaError as error:
            return await self._settler.not_tried(item, error.message)
        except Exception as error:  # the loop head of deliveries: a channel may be third-party code
            _log.exception("delivery.crashed", delivery_id=item.id, channel=channel)
            return await self._settler.not_tried(item, f"{type(error).__name__}: {error}")
        return await self._settler.delivered(item, status)


def _channel_of(item: DeliveryItem) -> str:
    if item.kind == "task_changed":
        return PUSHES
    return WEBHOOKS if item.webhook_id is not None else item.target
