"""``/v1/audit``."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime

from nova_workers.client.connection import lines_of
from nova_workers.client.resources.audit_calls import AuditCalls
from nova_workers.client.transport import Params
from nova_workers.contracts.http.archive import MEDIA_TYPE
from nova_workers.contracts.http.overview.audit import AuditEventView


class AuditLog(AuditCalls):
    """``/v1/audit``: what was changed, and by whom."""

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
        params: Params = {
            "actor": actor,
            "action": action,
            "target_kind": target_kind,
            "target": target,
            "since": since,
            "until": until,
            "tenant": tenant,
        }
        async with (
            self._transport.download("/v1/audit/export", accept=MEDIA_TYPE, params=params) as pieces,
            aclosing(lines_of(pieces)) as lines,
        ):
            async for line in lines:
                yield AuditEventView.model_validate_json(line)
