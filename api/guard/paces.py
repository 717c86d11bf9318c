"""How often each of many clients may do something, counted in this process."""

from typing import Final

_NS_PER_S: Final = 1_000_000_000


class Paces:
    """One pace for each name: so many at once, then at a rate (GCRA).

    A name costs one time, and those that were not seen for longest are forgotten: neither the memory nor the work of
    a call grows with their number. Times are whole nanoseconds: no rounding takes the last one of a burst away.

    Args:
        interval_s: Between two, in the long run.
        at_once: How many may be done without a pause.
        most: How many names are known at a time.
    """

    def __init__(self, *, interval_s: float, at_once: int, most: int) -> None:
        self.at_once: Final = at_once
        self._interval_ns: Final = round(interval_s * _NS_PER_S)
        self._burst_ns: Final = self._interval_ns * at_once
        self._most: Final = most
        self._due_ns: dict[str, int] = {}
        """When the next one of each name would be, without bursts. The name seen last is at the end."""

    def take(self, name: str, now_s: float) -> float:
        """Count one if it may be done now, and return 0; otherwise return the seconds until the next one may be."""
        now_ns = round(now_s * _NS_PER_S)
        due_ns = max(self._due_ns.pop(name, 0), now_ns)
        early_ns = self._early_ns(due_ns, now_ns)
        self._due_ns[name] = due_ns if early_ns > 0 else due_ns + self._interval_ns
        if len(self._due_ns) > self._most:
            del self._due_ns[next(iter(self._due_ns))]
        return max(0, early_ns) / _NS_PER_S

    def wait_s(self, name: str, now_s: float) -> float:
        """Return the seconds until the next one may be done, and count nothing."""
        now_ns = round(now_s * _NS_PER_S)
        return max(0, self._early_ns(max(self._due_ns.get(name, 0), now_ns), now_ns)) / _NS_PER_S

    def _early_ns(self, due_ns: int, now_ns: int) -> int:
        return due_ns + self._interval_ns - now_ns - self._burst_ns
