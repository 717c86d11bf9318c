"""Builds the rules of webhooks, which the API changes and workers send by."""

from __future__ import annotations

from nova_workers.base.config import Settings
from nova_workers.domain.secrets.rules.vault import Vault
from nova_workers.domain.webhooks.rules.service import Webhooks
from nova_workers.ledger.work import Work


def build_webhooks(work: Work, settings: Settings) -> Webhooks:
    """Return the rules of webhooks."""
    vault = Vault.of(settings.secrets.texts())
    return Webhooks(work, vault, allow_hosts=settings.delivery.webhook_allow_hosts)
