"""``/healthz``, ``/readyz``, ``/metrics``: for orchestrators and Prometheus. They need no key."""

import asyncio
from collections import Counter
from collections.abc import Awaitable
from typing import Any, Literal

import structlog
from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict
from redis.exceptions import RedisError

from nova_workers.base.errors import Unavailable
from nova_workers.domain.overview.sql.overdue import overdue_ages_s
from nova_workers.domain.runs.sql.fleet import fleet_depth
from nova_workers.domain.runs.sql.holds import count_held
from nova_workers.domain.upkeep.sql.cursors import tenants_behind
from nova_workers.ledger.schema import read_schema
from nova_workers.ledger.visibility import see_all_tenants

from ...providers import provider_rests
from ...state import ApiState, State

_METRICS: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}

router = APIRouter(tags=["health"])

_log = structlog.get_logger(__name__)

_DEADLINE_S = 2.0


class Health(BaseModel):
    """The process answers."""

    model_config = ConfigDict(frozen=True)

    status: Literal["ok"] = "ok"


class Readiness(BaseModel):
    """Whether this process can serve requests, and what prevents it."""

    model_config = ConfigDict(frozen=True)

    ready: bool
    checks: dict[str, str]
    """The result of each check: ``ok``, or what is wrong and how to fix it."""


@router.get("/healthz", name="get_liveness")
async def healthz() -> Health:
    """Report that the process is alive. It asks no other server: a database failure is no reason for a restart."""
    return Health()


@router.get(
    "/readyz",
    responses={503: {"model": Readiness, "description": "Not ready; `checks` says why."}},
    name="get_readiness",
)
async def readyz(state: State, response: Response) -> Readiness:
    """Report whether the database, its schema and the broker are ready."""
    (database, schema), broker = await asyncio.gather(_check_database(state), _check_broker(state))
    checks = {"database": database, "schema": schema, "broker": broker}
    # Without the broker requests are still served: runs are accepted, and rung for later.
    ready = database == "ok" and schema == "ok"
    if not ready:
        response.status_code = 503
    return Readiness(ready=ready, checks=checks)


@router.get("/metrics", response_class=Response, responses=_METRICS, name="get_metrics")
async def metrics(state: State) -> Response:
    """Return this process's counters and the fleet's gauges for Prometheus."""
    see_all_tenants()
    try:
        async with asyncio.timeout(_DEADLINE_S), state.services.database.connection() as connection:
            depth = await fleet_depth(connection, None)
            behind = await tenants_behind(connection)
            held = await count_held(connection, None)
            overdue_s = await overdue_ages_s(connection)
        state.services.metrics.set_fleet(
            depth.runs, {queue.queue: (queue.queued, queue.oldest_queued_age_s) for queue in depth.queues}
        )
        counts = Counter[str]()
        for group in held:
            counts[group.outage] += group.runs
        state.services.metrics.set_held(counts)
        state.services.metrics.backfill_tenants_behind.set(behind)
        state.services.metrics.set_overdue(overdue_s)
    except (Unavailable, TimeoutError) as error:
        _log.warning("metrics.fleet_unknown", outage="postgres", error=str(error))
    rests = await provider_rests(state.services.redis)
    if rests is not None:
        state.services.metrics.set_provider_rests(
            Counter(
                (rest.provider, "model" if rest.profile is None else "key")
                for rest in rests
                if rest.state != "answering"
            )
        )
    body, content_type = state.services.metrics.exposition()
    return Response(body, media_type=content_type)


async def _check_database(state: ApiState) -> tuple[str, str]:
    see_all_tenants()
    try:
        async with asyncio.timeout(_DEADLINE_S), state.services.database.connection() as connection:
            schema = await read_schema(connection)
    except (Unavailable, TimeoutError) as error:
        return f"does not answer: {error}", "unknown"
    return "ok", schema.problem(state.services.schema.head) or "ok"


async def _check_broker(state: ApiState) -> str:
    ping: Awaitable[bool] = state.services.redis.ping()
    try:
        async with asyncio.timeout(_DEADLINE_S):
            await ping
    except (RedisError, TimeoutError) as error:
        return f"does not answer: {error}"
    return "ok"
