"""``/v1/usage``."""

from datetime import datetime

from nova_workers.client.transport import Transport
from nova_workers.contracts.http.usage_report import UsageGrouping, UsageReport

__all__ = ["UsageReports"]


class UsageReports:
    """What was used."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def report(
        self,
        group_by: UsageGrouping = "day",
        *,
        days: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
    ) -> UsageReport:
        """Return sums by agent, day or model.

        Args:
            days: As many whole days of the fleet's time zone, the last with them. Not with `since`.
            since: Not before.
            until: Before this; None is now.
            limit: Most groups.
        """
        return await self._transport.fetch(
            UsageReport,
            "GET",
            "/v1/usage",
            params={
                "group_by": group_by,
                "days": days,
                "from": None if since is None else since.isoformat(),
                "to": None if until is None else until.isoformat(),
                "limit": limit,
            },
        )
