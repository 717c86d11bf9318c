"""Builds the rules of webhooks and of push notifications, which the API changes and workers send by."""

from __future__ import annotations

from nova_workers.base.config import Settings
from nova_workers.domain.secrets.rules.vault import Vault
from nova_workers.domain.webhooks.rules.pushes import Pushes
from nova_workers.domain.webhooks.rules.service import Webhooks
from nova_workers.ledger.work import Work


def build_webhooks(work: Work, settings: Settings) -> Webhooks:
    """Return the rules of webhooks."""
    vault = Vault.of(settings.secrets.source)
    return Webhooks(work, vault, allow_hosts=settings.delivery.webhook_allow_hosts)


def build_pushes(work: Work, settings: Settings) -> Pushes:
    """Return the rules of addresses that clients name for the changes of one run."""
    vault = Vault.of(settings.secrets.source)
    return Pushes(work, vault, allow_hosts=settings.delivery.webhook_allow_hosts)
