# Generated from deploy/environment/client.toml by `make format`: change that file instead.
"""``/v1/usage``."""

from datetime import datetime

from nova_workers.client.transport import Transport
from nova_workers.contracts.http.usage_report import UsageGrouping, UsageReport


class UsageReports:
    """Reports of tokens and cost."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def report(
        self,
        group_by: UsageGrouping = "day",
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        days: int | None = None,
        limit: int | None = None,
    ) -> UsageReport:
        """Return sums by agent, day or model.

        Args:
            days: Number of whole days of the fleet's time zone, today included. Not with `since`.
            since: Begin of the period.
            until: End of the period, exclusive; None is now.
            limit: Most groups.
        """
        return await self._transport.fetch(
            UsageReport,
            "GET",
            "/v1/usage",
            params={"group_by": group_by, "from": since, "to": until, "days": days, "limit": limit},
        )
