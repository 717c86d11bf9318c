"""The checks of `nova doctor` of Redis and of what works through it: queues, workers, beat."""

import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from pydantic import ValidationError
from redis.asyncio import Redis
from redis.exceptions import RedisError

from nova_workers.base.errors import in_one_line
from nova_workers.base.keys import BEAT_TTL_S, beat_tick, broker_queue, worker_presence, workers_index
from nova_workers.base.vocabulary import QUEUES
from nova_workers.cli.operations.clocks import skew
from nova_workers.cli.operations.findings import Finding, isolated
from nova_workers.cli.operations.redis_health import check_info
from nova_workers.cli.operations.sandbox_checks import check_sandboxes
from nova_workers.cli.terminal.output import age
from nova_workers.contracts.http.fleet import WorkerView

REDIS_AWAY = (RedisError, OSError, ValueError, TypeError)
"""What a Redis that does not answer raises, and an address whose parameters the client does not know."""

_CONNECT_S = 5
_LATE_TICK = timedelta(seconds=30)
"""The age of beat's tick that is late: six of its shortest interval that no setting changes."""
_Check = Callable[[Redis], Awaitable[Sequence[Finding]]]


async def check_broker(url: str | None) -> list[Finding]:
    """Check Redis: reachable, never evicting, persistent, its queues lists, its clock right, workers and beat alive."""
    if url is None:
        return [Finding("broker", "fail", "no URL", "set NOVA_REDIS_URL, or run `nova up`")]
    checks: tuple[tuple[str, _Check], ...] = (
        ("broker", _check_server),
        ("queues", _check_queues),
        ("clock of redis", _check_clock),
        ("workers", _check_workers),
        ("beat", _check_beat),
    )
    try:
        async with open_redis(url) as redis:
            # Answers without any right but to connect.
            await redis.ping()
            return [finding for name, check in checks for finding in await isolated(name, _one(redis, check))]
    except REDIS_AWAY as error:
        fix = "is it running? Check NOVA_REDIS_URL, or run `nova up`; runs are accepted meanwhile, and start later"
        return [Finding("broker", "fail", in_one_line(error), fix)]


def _one(redis: Redis, check: _Check) -> Callable[[], Awaitable[Sequence[Finding]]]:
    return lambda: check(redis)


@asynccontextmanager
async def open_redis(url: str) -> AsyncGenerator[Redis]:
    """Give a client that waits for no answer long."""
    client = Redis.from_url(url, socket_connect_timeout=_CONNECT_S, socket_timeout=_CONNECT_S)
    try:
        yield client
    finally:
        await client.aclose()


async def _check_server(redis: Redis) -> list[Finding]:
    return check_info(await redis.info())


async def _check_clock(redis: Redis) -> list[Finding]:
    before_s = time.time()
    seconds, micros = await redis.time()
    return [skew("clock of redis", seconds + micros / 1e6, before_s, time.time())]


async def _check_queues(redis: Redis) -> list[Finding]:
    depths: list[str] = []
    for queue in QUEUES:
        key = broker_queue(queue)
        kind = await redis.type(key)
        if kind not in (b"list", b"none", "list", "none"):
            fix = f"another program writes {key!r}: give the fleet a Redis database of its own in NOVA_REDIS_URL"
            return [Finding("queues", "fail", f"{key!r} holds a {_text(kind)}", fix)]
        depths.append(f"{queue} {await redis.llen(key)}")  # pyright: ignore[reportGeneralTypeIssues] - an awaitable here
    return [Finding("queues", "ok", ", ".join(depths))]


async def _check_beat(redis: Redis) -> list[Finding]:
    left_ms = int(await redis.pttl(beat_tick()))
    fix = "start it with `nova beat`; if it runs, its log says `tick.not_sent` or `tick.left_out`, and why"
    if left_ms < 0:
        what = "no tick within a day: nothing is recovered, fired or delivered again"
        return [Finding("beat", "fail", what, f"{fix}. A beat of release 0.2.0 records none: replace it")]
    ago = timedelta(seconds=BEAT_TTL_S, milliseconds=-left_ms)
    sender = _text(await redis.get(beat_tick()))
    if ago > _LATE_TICK:
        return [Finding("beat", "fail", f"its last tick is {age(ago.total_seconds())} old, from {sender}", fix)]
    return [Finding("beat", "ok", f"its last tick is {max(0, round(ago.total_seconds()))} s old, from {sender}")]


async def _check_workers(redis: Redis) -> list[Finding]:
    workers, unreadable = await _workers(redis)
    found = [_alive(workers), *check_sandboxes(workers)]
    if unreadable:
        detail = f"{unreadable} have a record that this release cannot read"
        found.append(Finding("worker records", "warn", detail, "run `nova doctor` of the workers' release"))
    fix = "make room, or mount a volume: docs/operations.md, `Files of agents`"
    # Those of one host say the same.
    warnings = dict.fromkeys((worker.host, warning) for worker in workers for warning in worker.warnings)
    found += [Finding(f"worker on {host}", "warn", warning, fix) for host, warning in warnings]
    found += _projects(workers)
    return found


async def _workers(redis: Redis) -> tuple[list[WorkerView], int]:
    """Return the workers by their own records, and how many are unreadable.

    The API shows them to operators only, and may be down.
    """
    ids = await redis.zrange(workers_index(), 0, -1)
    records = await redis.mget([worker_presence(_text(worker_id)) for worker_id in ids]) if ids else []
    workers: list[WorkerView] = []
    unreadable = 0
    for record in records:
        if record is None:
            continue
        try:
            workers.append(WorkerView.model_validate_json(record))
        except ValidationError:
            unreadable += 1
    return workers, unreadable


def _alive(workers: list[WorkerView]) -> Finding:
    alive = [worker for worker in workers if not worker.draining]
    if not alive:
        return Finding("workers", "fail", "none alive", "start one with `nova worker`; queued runs keep until then")
    served = {queue for worker in alive for queue in worker.queues}
    missing = [queue for queue in QUEUES if queue not in served]
    if missing:
        fix = f"start one with `nova worker --queues {','.join(missing)}`"
        return Finding("workers", "fail", f"no worker serves {', '.join(missing)}", fix)
    slots = sum(worker.slots for worker in alive)
    busy = sum(worker.busy for worker in alive)
    return Finding("workers", "ok", f"{len(alive)} alive, {busy} of {slots} slots busy")


def _projects(workers: list[WorkerView]) -> list[Finding]:
    """Return the problems of projects on workers; without any, the projects."""
    installed = {(code, worker.host) for worker in workers for code in worker.projects if not worker.draining}
    problems = {(code.label, host, code.problem) for code, host in installed if code.problem is not None}
    if problems:
        fix = "correct what it says, and give that host's workers the new wheel"
        return [Finding(f"project {name} on {host}", "fail", problem, fix) for name, host, problem in sorted(problems)]
    counted = Counter(code.label for worker in workers for code in worker.projects if not worker.draining)
    named = ", ".join(f"{label} on {count}" for label, count in sorted(counted.items()))
    return [Finding("projects", "ok", f"{named} of {len(workers)} workers")] if named else []


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
