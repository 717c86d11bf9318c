# Generated from nova_workers/client/resources/audit.py by `make format`: change that file instead.
"""``/v1/audit``."""

from datetime import datetime

from nova_workers.client.sync.transport import Transport
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.overview.audit import AuditEventView

__all__ = ["AuditLog"]


class AuditLog:
    """``/v1/audit``: what keys and agents changed."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        target_kind: str | None = None,
        target: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        tenant: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[AuditEventView]:
        """Return a page of records, newest first.

        Args:
            actor: Only what this key or agent did: its id.
            action: Only this, such as ``agent.updated``.
            target_kind: Only things of this kind, such as ``agent``.
            target: Only the things with this id.
            since: Not before.
            until: Before this.
            tenant: Another tenant's log; needs the scope `operator`.
            limit: Most records.
            cursor: `next_cursor` of the page before.
        """
        return self._transport.fetch(
            Page[AuditEventView],
            "GET",
            "/v1/audit",
            params={
                "actor": actor,
                "action": action,
                "target_kind": target_kind,
                "target": target,
                "since": None if since is None else since.isoformat(),
                "until": None if until is None else until.isoformat(),
                "tenant": tenant,
                "limit": limit,
                "cursor": cursor,
            },
        )
