"""The settings of deliveries, with the evidence for each default."""

from pydantic import Field

from nova_workers.base.config.forms import Count, Seconds
from nova_workers.base.config.sections import Section


class DeliverySettings(Section):
    """Deliveries to webhooks and other channels."""

    channels: dict[str, tuple[str, ...]] = Field(default_factory=lambda: {"*": ("webhooks",)})
    """Names of channels by agent, ``*`` for all others. ``webhooks`` is built in; others come from packages."""
    every_s: Seconds = 5.0
    """Interval of the check for due deliveries: the delay if a doorbell is lost."""
    at_once: Count = 32
    """Concurrent attempts of one worker."""
    at_once_per_target: Count = 4
    """Concurrent attempts for one address, so that a slow one does not block the others."""
    timeout_s: Seconds = 15.0
    """Longest time for one attempt; the Standard Webhooks recommend 15 to 30."""
    retry_s: tuple[Seconds, ...] = (5, 300, 1_800, 7_200, 18_000, 36_000, 36_000)
    """Pauses between attempts, those of the Standard Webhooks, each up to a fifth longer at random.

    Eight attempts in 28 to 33 hours: an address that is down for a night misses nothing."""
    max_body_bytes: Count = 262_144
    rest_after_failures: Count = 3
    """After this many consecutive failures a webhook rests between attempts, and has one at a time."""
    disable_after_failures: Count = 8
    """A webhook is disabled after this many consecutive failures..."""
    disable_after_s: Seconds = 86_400.0
    """...if the first was at least this long ago."""
    webhook_ports: tuple[int, ...] = (443, 8443)
    webhook_allow_hosts: tuple[str, ...] = ()
    """`host` or `host:port` that webhooks may name although they are not public, also over plain HTTP."""
