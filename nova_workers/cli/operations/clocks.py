"""Compares a server's clock with this machine's."""

from nova_workers.cli.operations.findings import Finding

MAX_SKEW_S = 2.0
"""Leases last 30 s and are renewed after 10 s: two seconds are harmless, and above the error of NTP."""


def skew(name: str, there_s: float, before_s: float, after_s: float) -> Finding:
    """Return the skew of a server's clock, read between two moments of this machine's."""
    skew_s = there_s - (before_s + after_s) / 2
    shown = f"{skew_s * 1000:+.0f} ms"
    if abs(skew_s) <= MAX_SKEW_S + (after_s - before_s) / 2:
        return Finding(name, "ok", shown)
    return Finding(name, "fail", f"{shown} from this machine's", "run NTP (chrony or systemd-timesyncd) on both")
