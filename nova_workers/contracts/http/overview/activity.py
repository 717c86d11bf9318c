"""The HTTP contract of activity over time."""

from datetime import datetime
from typing import Literal

from nova_workers.base.vocabulary import EndedRunStatus
from nova_workers.contracts.bodies import View

MAX_BUCKETS = 400
"""Most buckets of one request."""
MAX_GROUPS = 50
"""Most agents or models of a bucket: those with the most runs."""

BucketSize = Literal["minute", "hour", "day"]
ActivityGrouping = Literal["agent", "model"]


class Spread(View):
    """The median and the 95th percentile of durations, in seconds."""

    p50: float
    p95: float


class ActivityBucket(View):
    """What happened in one period, of one agent or model if grouped."""

    since: datetime
    until: datetime
    """Exclusive."""
    key: str | None = None
    """The agent's id or the model's. Null without grouping, and where no model answered or no agent is known."""
    accepted: int | None = None
    """Runs that were submitted. Null by model: it is not known then."""
    ended: dict[EndedRunStatus, int] | None = None
    """Runs that ended, by status. Null by model."""
    wait_s: Spread | None = None
    """From the submission (or the planned start) to the first claim, of runs that ended. Null by model, and without
    any."""
    duration_s: Spread | None = None
    """From the first claim to the end, with the time for which a run waited. Null without any."""
    model_calls: int = 0
    """Of runs that ended and of compactions, like tokens and cost."""
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: float | None = None
    """The sum of the known costs; null if none is known."""


class ActivityView(View):
    """A tenant's activity from `since` until `until`, in buckets from the oldest.

    Without grouping each period has one bucket; with grouping only those in which something happened.
    """

    bucket: BucketSize
    group_by: ActivityGrouping | None
    since: datetime
    until: datetime
    timezone: str
    """The time zone of days and hours."""
    buckets: list[ActivityBucket]
