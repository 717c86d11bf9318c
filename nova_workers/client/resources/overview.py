# Generated from deploy/environment/client.toml by `make format`: change that file instead.
"""``/v1/attention`` and ``/v1/activity``."""

from datetime import datetime

from nova_workers.client.transport import Transport
from nova_workers.contracts.http.overview.activity import ActivityGrouping, ActivityView, BucketSize
from nova_workers.contracts.http.overview.attention import AttentionView


class Overview:
    """What people look at first."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def attention(self, *, limit: int | None = None) -> AttentionView:
        """Return the items that need a person: of each kind the number, and up to `limit` of the newest."""
        return await self._transport.fetch(AttentionView, "GET", "/v1/attention", params={"limit": limit})

    async def activity(
        self,
        bucket: BucketSize = "hour",
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        group_by: ActivityGrouping | None = None,
    ) -> ActivityView:
        """Return runs, waits, durations, tokens and cost over time.

        Args:
            since: Begin; None is an hour, a day or 30 days before `until`, by the size of the buckets.
            until: End, exclusive; None is now.
        """
        return await self._transport.fetch(
            ActivityView,
            "GET",
            "/v1/activity",
            params={"from": since, "to": until, "bucket": bucket, "group_by": group_by},
        )
