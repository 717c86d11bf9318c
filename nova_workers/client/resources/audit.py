"""``/v1/audit``."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime

from nova_workers.client.connection import lines_of
from nova_workers.client.transport import Params, Transport
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.archive import MEDIA_TYPE
from nova_workers.contracts.http.overview.audit import AuditChainView, AuditEventView

__all__ = ["AuditLog"]


class AuditLog:
    """``/v1/audit``: what was changed, and by whom."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(
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
        params = _params(actor, action, target_kind, target, since=since, until=until, tenant=tenant)
        return await self._transport.fetch(
            Page[AuditEventView], "GET", "/v1/audit", params={**params, "limit": limit, "cursor": cursor}
        )

    async def chain(self, *, tenant: str | None = None) -> AuditChainView:
        """Return where the chain over the records begins and ends.

        Args:
            tenant: Another tenant's log; needs the scope `operator`.
        """
        return await self._transport.fetch(AuditChainView, "GET", "/v1/audit/chain", params={"tenant": tenant})

    async def export(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        target_kind: str | None = None,
        target: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        tenant: str | None = None,
    ) -> AsyncGenerator[AuditEventView]:
        """Yield all records in the order of their chain. Filters are those of `list`.

        Raises:
            Unavailable: The connection broke, so the export is incomplete.
        """
        params = _params(actor, action, target_kind, target, since=since, until=until, tenant=tenant)
        async with (
            self._transport.download("/v1/audit/export", accept=MEDIA_TYPE, params=params) as pieces,
            aclosing(lines_of(pieces)) as lines,
        ):
            async for line in lines:
                yield AuditEventView.model_validate_json(line)


def _params(
    actor: str | None,
    action: str | None,
    target_kind: str | None,
    target: str | None,
    *,
    since: datetime | None,
    until: datetime | None,
    tenant: str | None,
) -> Params:
    return {
        "actor": actor,
        "action": action,
        "target_kind": target_kind,
        "target": target,
        "since": None if since is None else since.isoformat(),
        "until": None if until is None else until.isoformat(),
        "tenant": tenant,
    }
