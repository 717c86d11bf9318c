"""The services of an API process."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from importlib import import_module

from prometheus_client import CollectorRegistry
from redis.asyncio import Redis

from nova_workers.base.clock import Clock, SystemClock
from nova_workers.base.config import OidcSettings, Settings
from nova_workers.base.config.secret_variables import secret_values
from nova_workers.base.deferred import Deferred
from nova_workers.base.observability.foreign import ForeignMessages
from nova_workers.base.observability.loop import watch_loop
from nova_workers.base.observability.metrics import Metrics
from nova_workers.base.observability.tracing import Tracing
from nova_workers.bootstrap.connections import Background, connect_database, connect_redis, session_name
from nova_workers.bootstrap.model_choice import build_catalog, build_configs
from nova_workers.bootstrap.webhooks import build_pushes, build_webhooks
from nova_workers.broker.dispatcher import BrokerDispatcher
from nova_workers.domain.agents.rules.ceilings import CeilingRules
from nova_workers.domain.agents.rules.service import Agents
from nova_workers.domain.capabilities.rules import default_registry
from nova_workers.domain.capabilities.rules.deferred import DeferredRegistry
from nova_workers.domain.changes.rules import ChangeHub
from nova_workers.domain.effects.rules.provider import EmbeddingProvider
from nova_workers.domain.effects.rules.setup import query_embeddings
from nova_workers.domain.keys.rules.people import IdTokenVerifier, People
from nova_workers.domain.orchestrations.rules.config.service import OrchestrationConfigs
from nova_workers.domain.orchestrations.rules.models.catalog import ModelCatalog, RankedModels
from nova_workers.domain.orchestrations.rules.service import Orchestrations
from nova_workers.domain.orchestrations.rules.starting import OrchestrationStarter
from nova_workers.domain.orchestrations.tools.external import ExternalMasters
from nova_workers.domain.orders.rules.accept import Orders
from nova_workers.domain.orders.rules.cancel import OrderCanceller
from nova_workers.domain.orders.rules.door import OrderDoor
from nova_workers.domain.orders.rules.policies.registry import Policies
from nova_workers.domain.orders.rules.reviews import OrderReviews
from nova_workers.domain.orders.rules.sealing import OrderKeys
from nova_workers.domain.orders.rules.secrets import OrderSecrets
from nova_workers.domain.projects.rules.applying import Projects
from nova_workers.domain.runs.rules.applying import CancelApplier
from nova_workers.domain.runs.rules.cancel import Canceller, Retrier
from nova_workers.domain.runs.rules.control import ControlChannel
from nova_workers.domain.runs.rules.moves import Mover
from nova_workers.domain.runs.rules.options import OptionRules
from nova_workers.domain.runs.rules.scheduled import Scheduled
from nova_workers.domain.runs.rules.submit import Submitter
from nova_workers.domain.runs.rules.turns.away_servers import AwayServers
from nova_workers.domain.runs.rules.turns.previewing import PromptPreviews
from nova_workers.domain.runs.rules.waiting import Waiting
from nova_workers.domain.search.rules import History
from nova_workers.domain.secrets.rules.service import Secrets
from nova_workers.domain.secrets.rules.vault import Vault
from nova_workers.domain.streams.rules.hub import StreamHub
from nova_workers.domain.streams.rules.publisher import EventPublisher
from nova_workers.domain.tasks.rules.scheduling import TaskScheduler
from nova_workers.domain.tasks.rules.service import Tasks
from nova_workers.domain.threads.rules.lock import ThreadLocks
from nova_workers.domain.triggers.rules.gate_addresses import check_gate_address, gate_rules
from nova_workers.domain.triggers.rules.on_request import TriggerFirer
from nova_workers.domain.upkeep.rules.agent_moves import AgentMoves
from nova_workers.domain.upkeep.rules.schema_watch import SchemaWatch
from nova_workers.domain.webhooks.rules.pushes import Pushes
from nova_workers.domain.webhooks.rules.service import Webhooks
from nova_workers.ledger.database import PostgresDatabase
from nova_workers.ledger.work import Work

_DRAIN_EVENTS_S = 2.0


@dataclass(frozen=True)
class ApiServices:
    """The services of the API process."""

    settings: Settings
    clock: Clock
    database: PostgresDatabase
    archive_database: PostgresDatabase
    """For exports and imports, which hold a connection for as long as a client takes to read or send."""
    archive_work: Work
    schema: SchemaWatch
    redis: Redis
    hub: StreamHub
    changes: ChangeHub
    publisher: EventPublisher
    dispatcher: BrokerDispatcher
    submitter: Submitter
    scheduled: Scheduled
    work: Work
    canceller: Canceller
    retrier: Retrier
    waiting: Waiting
    mover: Mover
    capabilities: DeferredRegistry
    agents: Agents
    agent_moves: AgentMoves
    projects: Projects
    prompt_previews: PromptPreviews
    away_servers: AwayServers
    orchestration_configs: OrchestrationConfigs
    model_catalog: ModelCatalog
    orchestrations: Orchestrations
    orchestration_starter: OrchestrationStarter
    external_masters: ExternalMasters
    order_policies: Policies
    order_secrets: OrderSecrets
    order_door: OrderDoor
    orders: Orders
    order_reviews: OrderReviews
    order_canceller: OrderCanceller
    tasks: Tasks
    task_scheduler: TaskScheduler
    triggers: TriggerFirer
    secrets: Secrets
    webhooks: Webhooks
    pushes: Pushes
    people: People
    history: History
    embeddings: EmbeddingProvider | None
    metrics: Metrics
    tracing: Tracing
    _background: Background = field(default_factory=Background)

    async def start(self) -> None:
        """Start background tasks. Postgres and Redis may be unavailable at this point."""
        self._background.start(
            schema=self.schema.run(),
            hub=self.hub.run(),
            changes=self.changes.run(),
            publisher=self.publisher.run(),
            loop_watch=watch_loop(self.metrics, self.clock),
            order_secrets=self.order_secrets.report_missing(),
        )

    async def aclose(self) -> None:
        """Stop and disconnect."""
        await self.agent_moves.close()
        await self.scheduled.close()
        await self.work.close()
        await self.publisher.drain(_DRAIN_EVENTS_S)
        await self._background.stop()
        await self.dispatcher.close()
        await self.hub.close()
        if self.embeddings is not None:
            await self.embeddings.close()
        await self.redis.aclose()
        await self.archive_database.close()
        await self.database.close()
        self.tracing.close()


def build_api(settings: Settings) -> ApiServices:
    """Build the API's services. Nothing is connected before `ApiServices.start`."""
    clock, metrics = SystemClock(), Metrics(CollectorRegistry())
    tracing = Tracing(settings.telemetry, "api")
    database = connect_database(settings, "nova-api", "tenants", per_tenant=settings.api.connections_per_tenant)
    redis = connect_redis(settings, "nova-api")
    publisher = EventPublisher(
        redis, flush_ms=settings.streams.flush_ms, clock=clock, on_sent=metrics.event_lag_s.observe
    )
    control = ControlChannel(redis)
    dispatcher = BrokerDispatcher(redis, metrics)
    notifier = CancelApplier(Work(database, dispatcher), control, publisher)
    work = Work(database, dispatcher, notifier)
    scheduled = Scheduled(work, publisher)
    embeddings = query_embeddings(settings.effects)
    capabilities = DeferredRegistry(
        partial(default_registry, database, settings, clock, embedder=embeddings, work=work)
    )
    catalog, configs = build_catalog(database, redis, settings), build_configs(database, settings)
    models = RankedModels(catalog)
    orchestrations = Orchestrations(work, models, settings.agent_directory)
    starter = OrchestrationStarter(orchestrations, configs)
    vault = Vault.of(settings.secrets.source)
    ceilings = CeilingRules.of(settings)
    archive_database = PostgresDatabase(
        settings.require_database_url(),
        pool_size=settings.api.archives,
        access="tenants",
        name=session_name("nova-api"),
    )
    order_policies, order_secrets = Policies(database, ceilings), OrderSecrets(database, vault)
    order_keys = OrderKeys(vault, secret_values(settings))
    agents = Agents(database, capabilities, ceilings)
    waiting = Waiting(work)
    return ApiServices(
        settings=settings,
        clock=clock,
        database=database,
        archive_database=archive_database,
        archive_work=Work(archive_database, dispatcher),
        schema=SchemaWatch(database),
        redis=redis,
        hub=StreamHub(redis, ForeignMessages(metrics)),
        changes=ChangeHub(database, clock),
        publisher=publisher,
        dispatcher=dispatcher,
        submitter=Submitter(work, scheduled, options=OptionRules(capabilities, default_engine=settings.default_engine)),
        scheduled=scheduled,
        work=work,
        canceller=Canceller(work),
        retrier=Retrier(work, redis),
        waiting=waiting,
        mover=Mover(work, ThreadLocks(redis, ttl_s=settings.runs.lease_ttl_s), waiting),
        capabilities=capabilities,
        agents=agents,
        agent_moves=AgentMoves(work),
        projects=Projects(
            database,
            agents,
            capabilities,
            timezone=settings.timezone,
            check_gate=partial(
                check_gate_address, rules=gate_rules(settings.tools, timeout_s=settings.triggers.gate_timeout_s)
            ),
        ),
        away_servers=AwayServers(redis),
        prompt_previews=PromptPreviews(database, settings, capabilities),
        orchestration_configs=configs,
        model_catalog=catalog,
        orchestrations=orchestrations,
        orchestration_starter=starter,
        external_masters=ExternalMasters(work, models, capabilities.tool_effects, settings.agent_directory),
        order_policies=order_policies,
        order_secrets=order_secrets,
        order_door=OrderDoor(database, order_policies, order_secrets, ceilings),
        orders=Orders(work, order_keys),
        order_reviews=OrderReviews(work, order_keys),
        order_canceller=OrderCanceller(work, order_keys),
        tasks=Tasks(work),
        task_scheduler=TaskScheduler(work, settings.tasks),
        triggers=TriggerFirer(work, metrics, planner=starter),
        secrets=Secrets(database, vault),
        webhooks=build_webhooks(work, settings),
        pushes=build_pushes(work, settings),
        people=People(database, clock, settings.oidc, Deferred("single sign-on", partial(_id_tokens, settings.oidc))),
        history=History(database, embeddings),
        embeddings=embeddings,
        metrics=metrics,
        tracing=tracing,
    )


def _id_tokens(settings: OidcSettings) -> IdTokenVerifier:
    """Import and build the checks of ID tokens: PyJWT imports the whole of `cryptography`."""
    module = import_module("nova_workers.domain.keys.rules.id_tokens")
    return module.build_id_tokens(settings)
