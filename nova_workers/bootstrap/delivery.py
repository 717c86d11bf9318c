"""Builds delivery: channels, their assignment to agents, and the sender."""

from __future__ import annotations

from nova_workers.base.clock import Clock
from nova_workers.base.config import Settings
from nova_workers.base.observability.metrics import Metrics
from nova_workers.base.outbound.requests import Outbound
from nova_workers.base.outbound.rules import OutboundRules
from nova_workers.bootstrap.webhooks import build_pushes, build_webhooks
from nova_workers.domain.delivery.rules.channels import WEBHOOKS, ChannelParts, ChannelRoutes, load_channels
from nova_workers.domain.delivery.rules.pushes import PushChannel
from nova_workers.domain.delivery.rules.sender import DeliverySender
from nova_workers.domain.delivery.rules.webhooks import WebhookChannel
from nova_workers.domain.secrets.rules.service import Secrets
from nova_workers.domain.secrets.rules.vault import Vault
from nova_workers.ledger.database import Database
from nova_workers.ledger.work import Work

_ANSWER_BYTES = 16_384
"""Bytes of a response that are read; only its status is used."""


def build_routes(database: Database, settings: Settings) -> ChannelRoutes:
    """Create the configured channels and resolve which agent uses which.

    Raises:
        ConfigurationError: A channel is not installed, or cannot be made.
    """
    delivery = settings.delivery
    webhook_guard = Outbound(
        OutboundRules(
            ports=delivery.webhook_ports,
            allow_hosts=delivery.webhook_allow_hosts,
            max_bytes=_ANSWER_BYTES,
            timeout_s=delivery.timeout_s,
        )
    )
    webhooks = WebhookChannel(
        database, build_webhooks(Work(database), settings), webhook_guard, max_body_bytes=delivery.max_body_bytes
    )
    pushes = PushChannel(database, build_pushes(Work(database), settings), webhook_guard)
    wanted = {name for names in delivery.channels.values() for name in names} - {WEBHOOKS}
    # Other channels may call only the public internet, even if the operator allows webhooks more.
    parts = ChannelParts(
        outbound=Outbound(OutboundRules(timeout_s=delivery.timeout_s)),
        secrets=Secrets(database, Vault.of(settings.secrets.source)),
        database=database,
    )
    return ChannelRoutes([webhooks, pushes, *(load_channels(wanted, parts) if wanted else ())], delivery.channels)


def build_sender(
    database: Database, settings: Settings, routes: ChannelRoutes, *, clock: Clock, metrics: Metrics
) -> DeliverySender:
    """Return the sender that delivers the outbox."""
    return DeliverySender(database, settings.delivery, routes, leases=settings.runs, clock=clock, metrics=metrics)
