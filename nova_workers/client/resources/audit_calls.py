# Generated from deploy/environment/client.toml by `make format`: change that file instead.
"""The calls of ``/v1/audit`` that are one request each."""

from datetime import datetime

from nova_workers.client.transport import Transport
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.overview.audit import AuditChainView, AuditEventView


class AuditCalls:
    """``/v1/audit``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(
        self,
        *,
        tenant: str | None = None,
        actor: str | None = None,
        action: str | None = None,
        target_kind: str | None = None,
        target: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
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
        return await self._transport.fetch(
            Page[AuditEventView],
            "GET",
            "/v1/audit",
            params={
                "tenant": tenant,
                "actor": actor,
                "action": action,
                "target_kind": target_kind,
                "target": target,
                "since": since,
                "until": until,
                "limit": limit,
                "cursor": cursor,
            },
        )

    async def chain(self, *, tenant: str | None = None) -> AuditChainView:
        """Return where the chain over the records begins and ends.

        Args:
            tenant: Another tenant's log; needs the scope `operator`.
        """
        return await self._transport.fetch(AuditChainView, "GET", "/v1/audit/chain", params={"tenant": tenant})
