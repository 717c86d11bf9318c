"""A cache of the buckets of activity that have ended: pages that show activity ask for the same ones often."""

from collections import OrderedDict
from collections.abc import Sequence
from datetime import timedelta

from nova_workers.base.clock import Clock
from nova_workers.contracts.http.overview.activity import ActivityBucket, ActivityGrouping
from nova_workers.domain.overview.sql.activity import Period, load_activity
from nova_workers.ledger.database import Database

_KEEP_S = 300.0
"""An import may add old runs, and a deletion removes some: they show after this long."""
_SETTLED_AFTER = timedelta(minutes=2)
"""A transaction that wrote a time of a bucket commits within this time after it."""
_MAX_BUCKETS = 50_000
"""Some 50 MB at most."""

_Key = tuple[str, ActivityGrouping | None, Period]


class ActivityCache:
    """Reads the activity of periods; those that have ended are kept for a few minutes."""

    def __init__(self, database: Database, clock: Clock, *, max_buckets: int = _MAX_BUCKETS) -> None:
        self._database = database
        self._max_buckets = max_buckets
        self._clock = clock
        self._known: OrderedDict[_Key, tuple[float, tuple[ActivityBucket, ...]]] = OrderedDict()
        self._size = 0

    async def load(
        self, tenant_id: str, periods: Sequence[Period], group_by: ActivityGrouping | None
    ) -> list[ActivityBucket]:
        """Return the buckets of periods, in their order.

        Raises:
            Unavailable: The database does not answer.
        """
        now_s = self._clock.monotonic_s()
        found: dict[Period, tuple[ActivityBucket, ...]] = {}
        for period in periods:
            good_until_s, buckets = self._known.get((tenant_id, group_by, period), (0.0, ()))
            if good_until_s > now_s:
                found[period] = buckets
        missing = [period for period in periods if period not in found]
        if missing:
            async with self._database.connection() as connection:
                loaded = await load_activity(connection, tenant_id, missing, group_by)
            found |= loaded
            settled = self._clock.now() - _SETTLED_AFTER
            for period, buckets in loaded.items():
                if period[1] <= settled:
                    self._keep((tenant_id, group_by, period), now_s + _KEEP_S, buckets)
        return [bucket for period in periods for bucket in found[period]]

    def _keep(self, key: _Key, good_until_s: float, buckets: tuple[ActivityBucket, ...]) -> None:
        before = self._known.pop(key, None)
        self._known[key] = (good_until_s, buckets)
        self._size += len(buckets) + 1 - (0 if before is None else len(before[1]) + 1)
        while self._size > self._max_buckets:
            _, (_, dropped) = self._known.popitem(last=False)
            self._size -= len(dropped) + 1
