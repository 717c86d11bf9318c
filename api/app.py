"""Builds the application, and its lifecycle."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import structlog
from fastapi import FastAPI
from redis.exceptions import RedisError
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute

from nova_workers.base.config import Settings, load_settings
from nova_workers.base.errors import Unavailable
from nova_workers.base.http_server.addresses import ForwardedClients, TrustedProxies
from nova_workers.base.http_server.connections import ConnectionLimits
from nova_workers.base.http_server.hosts import HostCheck
from nova_workers.base.observability.asgi import ObservabilityMiddleware
from nova_workers.base.observability.lines import gather_lines, write_lines_at_once
from nova_workers.base.observability.logging import configure_logging
from nova_workers.base.program import exclude_from_collections
from nova_workers.base.stopping import stop_tasks
from nova_workers.bootstrap.api import ApiServices, build_api
from nova_workers.broker.redis_connections import open_connections
from nova_workers.contracts.http.wire import RunView
from nova_workers.domain.keys.sql.keys import find_key, hash_secret
from nova_workers.domain.orders.sql.records import orders_not_running
from nova_workers.domain.upkeep.rules.rehearsal import PLANNED_AFTER
from nova_workers.ledger.visibility import all_tenants, one_tenant, see_all_tenants

from .activity_cache import ActivityCache
from .boundary import BodyLimit, UnhandledErrors
from .direct_route import DirectRoute
from .doors.errors import DoorErrors
from .doors.loading import LoadedDoor, describe_doors, load_doors
from .errors import install_error_handlers, problem_response
from .guard.archives import IMPORT_PATH, ArchivePermits
from .guard.key_uses import KeyUses
from .guard.rates import RequestRates
from .guard.refusals import Refusals, install_refusals
from .guard.requests import NATIVE, RequestGuard
from .guard.sign_ins import SignIns
from .key_cache import KeyCache
from .late_modules import LateModule
from .openapi import install_openapi
from .routes import reference
from .routes.operations import (
    activity,
    attention,
    changes,
    fleet,
    health,
    keys,
    tenant,
    usage,
)
from .routes.orchestrations import config as orchestration_config
from .routes.orchestrations import events as orchestration_events
from .routes.orchestrations import masters as orchestration_masters
from .routes.orchestrations import models as orchestration_models
from .routes.orchestrations import starts as orchestration_starts
from .routes.orchestrations import trees as orchestration_trees
from .routes.orders.admission import install_order_refusals
from .routes.runs import (
    answers,
    events,
    feedback,
    lists,
    moves,
    requests,
    run_lists,
    runs,
    submissions,
    thread_states,
    threads,
    timelines,
)
from .routes.runs.rehearsal import rehearse_messages
from .routes.workspace import (
    agents,
    capabilities,
    projects,
)
from .state import ApiState
from .stopping import on_stop_signal
from .streaming.following import RunFollower
from .streaming.following_changes import ChangeFollower
from .streaming.following_trees import TreeFollower
from .streaming.run_watch import RunWatch
from .streaming.stream_permits import StreamPermits
from .streaming.waiting_orders import OrderFollower

_log = structlog.get_logger(__name__)

_NO_TENANT = "ten_none"
_WATCH_EVERY_S = 2.0
_FIRST_CONNECTIONS = 2
"""The connections to Redis at the start: a message rings, and subscribes to its run."""
_EXPOSED_HEADERS = (
    "Content-Location",
    "ETag",
    "Idempotent-Replayed",
    "Location",
    "Nova-Interrupted-Run-Id",
    "Preference-Applied",
    "Retry-After",
)
"""Which scripts of other origins may read."""
_LARGE_BODIES = (threads.IMPORT_PATH, projects.PLAN_PATH, projects.APPLY_PATH)
_STREAMED = frozenset({IMPORT_PATH})
_DESCRIPTION = """
Send messages to AI agents, follow what they do, and read what they did. What was accepted with 202 is in the ledger:
it is neither lost nor run twice. Errors are problem documents (RFC 9457) whose `code` is stable.
"""


def create_app() -> FastAPI:
    """Return the application as the environment describes it; the factory for uvicorn."""
    settings = load_settings()
    configure_logging(settings.telemetry, "api")
    return build_app(settings)


def build_app(settings: Settings) -> FastAPI:
    """Return an application. It connects to its servers when it starts, and waits for those that are down."""
    services = build_api(settings)
    keys = KeyCache(services.database, services.clock, cache_s=settings.api.key_cache_s)
    sign_ins = SignIns(services.database, services.clock, cache_s=settings.api.key_cache_s)
    key_uses = KeyUses(services.database, services.clock)
    refusals = Refusals(services.database)
    proxies = TrustedProxies(settings.api.trusted_proxies)
    doors = load_doors(settings.doors)
    app = FastAPI(
        title="Nova Workers",
        version="1",
        description=_DESCRIPTION,
        lifespan=_lifespan,
        docs_url=None,
        redoc_url=None,
        # A route of our own.
        openapi_url=None,
        # Spans and metrics come from our own middleware, as in all processes.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        routes=[*_routes(), *(route for door in doors for route in door.routes)],
        middleware=[
            *_believing(proxies),
            Middleware(ObservabilityMiddleware, metrics=services.metrics, tracing=services.tracing),
            *_speaking(doors),
            Middleware(HostCheck, names=_names(settings), answer=problem_response),
            *_cross_origin(settings.api.cors_origins),
            Middleware(UnhandledErrors),
            Middleware(
                RequestGuard,
                schema=services.schema,
                keys=keys,
                uses=key_uses,
                rates=RequestRates(settings.api),
                sign_ins=sign_ins,
                refusals=refusals,
                guarded=(NATIVE, *(door.prefix for door in doors)),
                key_headers={door.prefix: door.key_header for door in doors if door.key_header is not None},
            ),
            Middleware(
                BodyLimit,
                max_bytes=settings.api.max_body_bytes,
                others=dict.fromkeys(_LARGE_BODIES, max(settings.api.max_import_bytes, settings.api.max_body_bytes)),
                unbounded=_STREAMED,
            ),
        ],
    )
    watch = RunWatch(services.database, every_s=_WATCH_EVERY_S)
    order_watch = RunWatch(services.database, every_s=_WATCH_EVERY_S, find=orders_not_running)
    app.state.nova = ApiState(
        services=services,
        proxies=proxies,
        keys=keys,
        sign_ins=sign_ins,
        key_uses=key_uses,
        refusals=refusals,
        activity=ActivityCache(services.database, services.clock),
        watch=watch,
        follower=RunFollower(services.database, services.redis, services.hub, watch),
        tree_follower=TreeFollower(services.database, services.hub, watch),
        change_follower=ChangeFollower(services.changes),
        order_follower=OrderFollower(services.database, services.hub, order_watch, services.clock),
        order_watch=order_watch,
        permits=StreamPermits(services.redis, services.clock, per_key=settings.api.max_streams_per_key),
        archives=ArchivePermits(settings.api.archives),
        doors=describe_doors(doors),
    )
    install_error_handlers(app)
    install_refusals(app, refusals)
    install_order_refusals(app)
    install_openapi(app)
    return app


def _routes() -> list[BaseRoute]:
    """Return all routes that are no door's."""
    # The routes themselves: routers that are included derive each route anew, in the first requests they see.
    return [
        # Fixed paths such as /v1/runs/wait come before those with an id in the same position.
        *submissions.router.routes,
        *submissions.batches.routes,
        *health.router.routes,
        *events.router.routes,
        *answers.router.routes,
        *lists.router.routes,
        *run_lists.router.routes,
        *runs.router.routes,
        *moves.router.routes,
        *timelines.router.routes,
        *requests.router.routes,
        *feedback.router.routes,
        LateModule("evaluations.datasets", "/v1/datasets", routers=("router", "examples")),
        LateModule("evaluations.evaluations", "/v1/evaluations"),
        *threads.creation.routes,
        *threads.router.routes,
        *thread_states.router.routes,
        *agents.router.routes,
        LateModule("workspace.rollouts", "/v1/agents/{agent_id}/rollout", "/v1/agents/{agent_id}/rollouts"),
        LateModule("workspace.sampling", "/v1/agents/{agent_id}/sampling"),
        *fleet.router.routes,
        *keys.router.routes,
        LateModule("operations.leases", "/v1/leases"),
        LateModule("operations.inbound_channels", "/v1/inbound-channels"),
        LateModule("operations.pairings", "/v1/pairings"),
        *usage.router.routes,
        *attention.router.routes,
        *activity.router.routes,
        *changes.router.routes,
        LateModule("operations.audit", "/v1/audit"),
        *tenant.router.routes,
        LateModule("operations.tenants", "/v1/tenants"),
        LateModule("workspace.archive", "/v1/export", IMPORT_PATH),
        *capabilities.router.routes,
        LateModule("workspace.search", "/v1/search"),
        LateModule("workspace.memories", "/v1/memories"),
        LateModule("workspace.tasks", "/v1/tasks"),
        LateModule("workspace.notes", "/v1/notes"),
        LateModule("workspace.deliveries", "/v1/deliveries", "/v1/delivery-targets", "/v1/files"),
        LateModule("workspace.secrets", "/v1/secrets", "/v1/fleet/secrets"),
        LateModule("workspace.skills", "/v1/skills"),
        *projects.router.routes,
        LateModule("workspace.triggers", "/v1/triggers"),
        *orchestration_config.router.routes,
        *orchestration_models.router.routes,
        *orchestration_starts.router.routes,
        *orchestration_trees.router.routes,
        *orchestration_masters.router.routes,
        *orchestration_events.router.routes,
        LateModule("orders.work_orders", "/v1/work-orders"),
        LateModule("orders.policies", "/v1/work-order-policies"),
        LateModule("orders.secrets", "/v1/work-order-secrets"),
        LateModule("workspace.webhooks", "/v1/webhooks"),
        *reference.routes,
    ]


def _names(settings: Settings) -> list[str]:
    """Return the names by which clients reach the API."""
    public = urlsplit(settings.api.public_url or "").hostname
    return [*settings.allowed_hosts, settings.api.host, *([public] if public else [])]


def _cross_origin(origins: Sequence[str]) -> list[Middleware]:
    """Return the middleware that lets web pages of these origins call the API. Keys are headers: no cookie is sent."""
    if not origins:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=("DELETE", "GET", "PATCH", "POST", "PUT"),
            allow_headers=["*"],
            expose_headers=_EXPOSED_HEADERS,
        )
    ]


def _speaking(doors: Sequence[LoadedDoor]) -> list[Middleware]:
    """Return the middleware that gives errors at doors the form of their protocols."""
    return [Middleware(DoorErrors, doors=doors)] if doors else []


def _believing(proxies: TrustedProxies) -> list[Middleware]:
    """Return the middleware that takes a client's address from X-Forwarded-For, of these proxies only."""
    return [Middleware(ForwardedClients, proxies=proxies)] if proxies else []


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncGenerator[dict[str, ConnectionLimits]]:
    state: ApiState = app.state.nova
    services: ApiServices = state.services
    # Background tasks serve all tenants. Requests have contexts of their own.
    see_all_tenants()
    await services.start()
    exclude_from_collections()
    tasks = [
        asyncio.create_task(state.proxies.run()),
        asyncio.create_task(state.watch.run()),
        asyncio.create_task(state.order_watch.run()),
        asyncio.create_task(state.permits.renew()),
        asyncio.create_task(state.key_uses.run()),
        asyncio.create_task(state.refusals.run()),
        asyncio.create_task(_warm_up(app, services)),
    ]
    gather_lines()
    try:
        with (
            on_stop_signal(state.watch.close),
            on_stop_signal(state.order_watch.close),
            on_stop_signal(state.change_follower.close),
            on_stop_signal(write_lines_at_once),
        ):
            limits = ConnectionLimits(services.settings.api, state.proxies, answer=problem_response, streamed=_STREAMED)
            yield {"connections": limits}
    finally:
        # uvicorn ends the process by the signal that stopped it.
        write_lines_at_once()
        state.watch.close()
        state.order_watch.close()
        state.change_follower.close()
        await stop_tasks(tasks)
        await state.key_uses.close()
        await state.refusals.close()
        await services.aclose()


async def _warm_up(app: FastAPI, services: ApiServices) -> None:
    """Build the types that a message and its answer need, and connect to the servers, once and if they answer."""
    for route in submissions.router.routes:
        if isinstance(route, DirectRoute):
            route.prepare()
            # A type takes up to 20 ms; requests go on between two of them.
            await asyncio.sleep(0)
    RunView.model_rebuild()
    try:
        with all_tenants():
            await services.database.open()
        with one_tenant(_NO_TENANT):
            await services.database.open()
        await open_connections(services.redis, _FIRST_CONNECTIONS)
        await _rehearse(app, services)
    except (Unavailable, RedisError):
        # The first request connects, or reports why it cannot.
        _log.info("api.not_connected_yet")
    except Exception:
        # The API serves without it.
        _log.exception("api.not_rehearsed")


async def _rehearse(app: FastAPI, services: ApiServices) -> None:
    """Let the sessions that the first message uses plan its statements, on a schema that has them."""
    with all_tenants():
        if not (services.schema.fits or await services.schema.look()) or await services.database.is_shared():
            return
        async with services.database.connection() as connection:
            for _ in range(PLANNED_AFTER):
                await find_key(connection, hash_secret(""))
    await rehearse_messages(app)
