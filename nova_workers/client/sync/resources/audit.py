# Generated from nova_workers/client/resources/audit.py by `make format`: change that file instead.
"""``/v1/audit``."""

from collections.abc import Generator
from contextlib import closing
from datetime import datetime

from nova_workers.client.sync.connection import lines_of
from nova_workers.client.sync.resources.audit_calls import AuditCalls
from nova_workers.client.sync.transport import Params
from nova_workers.contracts.http.archive import MEDIA_TYPE
from nova_workers.contracts.http.overview.audit import AuditEventView


class AuditLog(AuditCalls):
    """``/v1/audit``: what was changed, and by whom."""

    def export(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        target_kind: str | None = None,
        target: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        tenant: str | None = None,
    ) -> Generator[AuditEventView]:
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
        with (
            self._transport.download("/v1/audit/export", accept=MEDIA_TYPE, params=params) as pieces,
            closing(lines_of(pieces)) as lines,
        ):
            for line in lines:
                yield AuditEventView.model_validate_json(line)
