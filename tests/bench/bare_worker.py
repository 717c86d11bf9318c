"""A bare Celery app on the fleet's own settings, whose tasks do nothing: the cost of the queue alone.

    NOVA_BENCH_BARE_REDIS_URL=… celery -A tests.bench.bare_worker:app worker -P threads

It has no ledger, no lock, no events and no HTTP, and loses its tasks when it dies.
"""

import itertools
import os
import time

from redis import Redis

from nova_workers.broker.celery_app import build_celery
from tests.bench.bare import COUNT, PING, SLEEP, URL

_TTL_S = 60

app = build_celery(os.environ[URL], fail_fast=False)
_redis = Redis.from_url(os.environ[URL])
_ended: dict[str, "itertools.count[int]"] = {}
_first_s: dict[str, float] = {}


def _record(key: str, value: float) -> None:
    _redis.lpush(key, value)
    _redis.expire(key, _TTL_S)


@app.task(name=COUNT)
def count(key: str, total: int) -> None:
    """Do nothing; the last of `total` records how long all took, from the first one's start."""
    began_s = _first_s.setdefault(key, time.monotonic())
    if next(_ended.setdefault(key, itertools.count(1))) == total:
        _record(key, time.monotonic() - began_s)


@app.task(name=PING)
def ping(key: str) -> None:
    """Only record the end."""
    _record(key, 0.0)


@app.task(name=SLEEP)
def sleep(key: str, total: int, seconds: float) -> None:
    """Sleep; the last of `total` reports the end."""
    time.sleep(seconds)
    if next(_ended.setdefault(key, itertools.count(1))) == total:
        _record(key, 0.0)
