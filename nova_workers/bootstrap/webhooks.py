"""Builds the rules of webhooks, which the API changes and workers send by."""

from __future__ import annotations

from nova_workers.config import Settings
from nova_workers.ledger.database import Database
from nova_workers.workspace.vault import Vault
from nova_workers.workspace.webhooks import Webhooks

__all__ = ["build_webhooks"]


def build_webhooks(database: Database, settings: Settings) -> Webhooks:
    """Return the rules of webhooks."""
    vault = Vault.of(settings.secrets.texts())
    return Webhooks(database, vault, allow_hosts=settings.delivery.webhook_allow_hosts)
