"""The sender: claims what is due in the outbox, has channels hand it over, writes how it went.

What is due lives in the ledger's rows, so it survives every process and every doorbell, and is handed over at least
once: a process that dies between the answer and its note of it leaves a row that is tried again, under the same id.
"""

import asyncio
import random
from collections import Counter
from datetime import timedelta
from typing import Final

import structlog

from nova_workers.clock import Clock
from nova_workers.config import DeliverySettings
from nova_workers.contracts.deliveries import DeliveryItem
from nova_workers.delivery.channels import WEBHOOKS, ChannelRoutes
from nova_workers.delivery.routing import InboxRouter
from nova_workers.delivery.settling import Settler
from nova_workers.errors import DeliveryFailed, NovaError
from nova_workers.ledger.database import Database
from nova_workers.ledger.delivery.outbox import claim_deliveries, release_deliveries
from nova_workers.observability.metrics import Metrics

__all__ = ["DeliverySender"]

_ROUND_S: Final = 30.0
"""A round claims nothing new after this, and ends: its slot is for others too. Who called rings again."""

_SETTLE_S: Final = 45.0
"""What a lease has beside the longest try: for the way to the database and back, when it is busy."""

_RELEASE_S: Final = 2.0

_log = structlog.get_logger(__name__)


class DeliverySender:
    """Empties the outbox. Any number of senders, in any number of processes, share the rows."""

    def __init__(
        self,
        database: Database,
        settings: DeliverySettings,
        routes: ChannelRoutes,
        *,
        clock: Clock,
        metrics: Metrics,
        rng: random.Random | None = None,
    ) -> None:
        """Keep what is handed in; nothing is started.

        Args:
            database: Where the rows are.
            settings: Bounds, pauses and when to give up.
            routes: The channels.
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
        self._settler = Settler(database, settings, rng or random.Random())  # noqa: S311 - spreads retries, guards nothing
        self._lease = timedelta(seconds=settings.timeout_s + _SETTLE_S)
        self._under_way: Counter[str] = Counter()
        self._trying: set[asyncio.Task[None]] = set()
        self._claiming = asyncio.Lock()
        self._draining = False

    async def run_due(self) -> int:
        """Pass on what came into the inbox, and hand over what is due.

        Goes on as long as something is due, within a bound. An address that is slow costs the others nothing: its own
        few tries wait, the rest are claimed anew as each of theirs ends.

        Returns:
            How much there was. As long as it is not 0, there may be more: ring again.

        Raises:
            Unavailable: The database cannot be reached; whatever was claimed is due again after its lease.
        """
        if self._draining:
            return 0
        done = await self._router.route_due()
        until_s = self._clock.monotonic_s() + _ROUND_S
        mine: set[asyncio.Task[None]] = set()
        failures: list[BaseException] = []
        try:
            while True:
                over = bool(failures) or self._draining or self._clock.monotonic_s() > until_s
                started, full = (set[asyncio.Task[None]](), False) if over else await self._start_due()
                done += len(started)
                mine |= started
                if not mine:
                    break
                # With more to come, the first place that is free takes it. With nothing left, who puts in more rings.
                when = asyncio.FIRST_COMPLETED if started or full else asyncio.ALL_COMPLETED
                ended, mine = await asyncio.wait(mine, return_when=when)
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
        """Stop for good: tries under way are stopped and given back. On the loop; returns at once."""
        self._draining = True
        for task in self._trying:
            task.cancel()

    async def close(self) -> None:
        """Close every channel."""
        await self._routes.close()

    async def _start_due(self) -> tuple[set[asyncio.Task[None]], bool]:
        """Claim what is due and there is room for. Returns the tries that began, and whether there was no room."""
        settings, names = self._settings, self._routes.names
        # One at a time: what one round claims, the next one counts.
        async with self._claiming:
            room = settings.at_once - self._under_way.total()
            if room <= 0:
                return set(), True
            async with self._database.connection() as connection:
                claimed = await claim_deliveries(
                    connection,
                    under_way=dict(self._under_way),
                    per_lane=settings.at_once_per_target,
                    rest_after=settings.rest_after_failures,
                    channels=[name for name in names if name != WEBHOOKS],
                    webhooks=WEBHOOKS in names,
                    limit=room,
                    lease=self._lease,
                )
            return {self._start(item) for item in claimed}, False

    def _start(self, item: DeliveryItem) -> asyncio.Task[None]:
        self._under_way[item.target] += 1
        task = asyncio.create_task(self._try(item))
        self._trying.add(task)
        task.add_done_callback(lambda ended: self._ended(ended, item))
        if self._draining:  # since the claim was sent
            task.cancel()
        return task

    def _ended(self, task: asyncio.Task[None], item: DeliveryItem) -> None:
        self._trying.discard(task)
        self._under_way[item.target] -= 1
        if not self._under_way[item.target]:
            del self._under_way[item.target]

    async def _try(self, item: DeliveryItem) -> None:
        channel = WEBHOOKS if item.webhook_id is not None else item.target
        started_s = self._clock.monotonic_s()
        try:
            outcome = await self._deliver(channel, item)
        except asyncio.CancelledError:
            await self._release(item)
            self._metrics.deliveries.labels(channel, "released").inc()
            raise
        self._metrics.delivery_duration_s.labels(channel).observe(self._clock.monotonic_s() - started_s)
        self._metrics.deliveries.labels(channel, outcome).inc()

    async def _deliver(self, channel: str, item: DeliveryItem) -> str:
        if item.attempt > self._settler.most_attempts:
            return await self._settler.give_up(item, "The worker was lost in every try.")
        try:
            # Over the channel's own bound, which says more.
            async with asyncio.timeout(self._settings.timeout_s + 5):
                status = await self._routes.channel(channel).deliver(item)
        except DeliveryFailed as failed:
            return await self._settler.failed(item, failed)
        except TimeoutError:
            return await self._settler.failed(item, DeliveryFailed("There was no answer in time.", retryable=True))
        except NovaError as error:
            return await self._settler.not_tried(item, error.message)
        except Exception as error:  # the loop head of deliveries: a channel may be anybody's
            _log.exception("delivery.crashed", delivery_id=item.id, channel=channel)
            return await self._settler.not_tried(item, f"{type(error).__name__}: {error}")
        return await self._settler.delivered(item, status)

    async def _release(self, item: DeliveryItem) -> None:
        try:
            async with asyncio.timeout(_RELEASE_S), self._database.connection() as connection:
                await release_deliveries(connection, [item])
        except (NovaError, TimeoutError) as error:
            _log.warning("delivery.not_released", delivery_id=item.id, error=str(error))
