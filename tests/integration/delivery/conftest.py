"""Deliveries in the test process: real rows, a real receiver, and time that a test moves."""

from __future__ import annotations

import base64
import random
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from pydantic import SecretStr

from nova_workers.base.clock import SystemClock
from nova_workers.base.config import Settings
from nova_workers.base.observability.metrics import Metrics
from nova_workers.bootstrap.delivery import build_routes, build_webhooks
from nova_workers.contracts.deliveries import Sender
from nova_workers.contracts.http.webhooks import WebhookCreate, WebhookSecret
from nova_workers.domain.agents.sql.records import seed_defaults
from nova_workers.domain.delivery.rules.channels import ChannelRoutes
from nova_workers.domain.delivery.rules.from_agents import notify
from nova_workers.domain.delivery.rules.routing import InboxRouter
from nova_workers.domain.delivery.rules.sender import DeliverySender
from nova_workers.domain.tenants.sql.settings import ensure_tenant
from nova_workers.ledger.database import Database
from nova_workers.ledger.work import Work
from tests.support.servers.webhook_receiver import Receiver, receiver

MASTER_KEY = "k1:" + base64.b64encode(bytes(range(32))).decode()


class DeliveryHarness:
    """Webhooks of one tenant, and a sender."""

    def __init__(self, database: Database, settings: Settings, inbox: Receiver) -> None:
        self.database = database
        self.settings = settings
        self.receiver = inbox
        self.tenant_id = "ten_post"
        self.webhooks = build_webhooks(Work(database), settings)
        self.sender = self.another()

    def another(
        self,
        routes: ChannelRoutes | None = None,
        *,
        settings: Settings | None = None,
        database: Database | None = None,
    ) -> DeliverySender:
        """Return a further sender, as in another process."""
        settings = settings or self.settings
        return DeliverySender(
            database or self.database,
            settings.delivery,
            routes or build_routes(self.database, settings),
            leases=settings.runs,
            clock=SystemClock(),
            metrics=Metrics(CollectorRegistry()),
            rng=random.Random(1),
        )

    async def webhook(self, path: str = "/hook", *, may_audit: bool = False, **fields: Any) -> WebhookSecret:
        """Make a webhook to a path of the receiver."""
        given = WebhookCreate(url=self.receiver.url(path), **fields)
        return await self.webhooks.create(self.tenant_id, given, may_audit=may_audit)

    async def say(self, text: str = "Hello", *, run_id: str = "run_1", agent_id: str = "nova") -> None:
        """Notify the user, as an agent does."""
        await notify(Work(self.database), Sender(self.tenant_id, agent_id, "thr_1", run_id), text)

    async def route(self, routes: ChannelRoutes | None = None) -> None:
        """Route the inbox to channels, and send nothing."""
        await InboxRouter(self.database, routes or build_routes(self.database, self.settings)).route_due()

    async def rows(self, target: str | None = None) -> list[dict[str, Any]]:
        """Return the outbox, oldest first, without the inbox; or the rows of one target."""
        rows = await self.database.fetch(
            "SELECT *, extract(epoch FROM due_at - now())::float8 AS due_in_s FROM deliveries"
            " WHERE target <> 'user' AND (:target::text IS NULL OR target = :target) ORDER BY id",
            target=target,
        )
        return [dict(row) for row in rows]

    async def inbox(self) -> list[str]:
        """Return the texts in the inbox, oldest first."""
        rows = await self.database.fetch(
            "SELECT payload ->> 'text' AS words FROM deliveries WHERE target = 'user' ORDER BY id"
        )
        return [row["words"] for row in rows]

    async def pass_time(self, seconds: float = 100_000) -> None:
        """Let time pass, by moving everything that has a time into the past."""
        await self.database.execute(
            "UPDATE deliveries SET due_at = due_at - make_interval(secs => :seconds) WHERE status = 'pending'",
            seconds=seconds,
        )
        await self.database.execute(
            "UPDATE webhooks SET failing_since = failing_since - make_interval(secs => :seconds),"
            " rests_until = rests_until - make_interval(secs => :seconds),"
            " previous_expires_at = previous_expires_at - make_interval(secs => :seconds)",
            seconds=seconds,
        )


@pytest.fixture
async def receiving() -> AsyncGenerator[Receiver]:
    """A receiver on loopback."""
    async with receiver() as made:
        yield made


@pytest.fixture
def delivery_settings(settings: Settings, receiving: Receiver) -> Settings:
    """Settings with a master key, and with the receiver allowed."""
    delivery = settings.delivery.model_copy(update={"webhook_allow_hosts": (receiving.host,), "timeout_s": 60.0})
    secrets = settings.secrets.model_copy(update={"keys": (SecretStr(MASTER_KEY),)})
    return settings.model_copy(update={"delivery": delivery, "secrets": secrets})


@pytest.fixture
async def deliveries(database: Database, delivery_settings: Settings, receiving: Receiver) -> DeliveryHarness:
    """The harness with a tenant and the default agents."""
    made = DeliveryHarness(database, delivery_settings, receiving)
    async with database.transaction() as connection:
        await ensure_tenant(connection, made.tenant_id, "post")
        await seed_defaults(connection, made.tenant_id)
    return made
