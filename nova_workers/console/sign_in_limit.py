"""How many sign-ins of an address may fail: a guesser slows itself, and no other person."""

from collections import OrderedDict, deque
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final

from nova_workers.base.clock import Clock
from nova_workers.base.errors import TooManyRequests, Unauthenticated

_WINDOW_S: Final = 60.0
_MAX_ADDRESSES: Final = 10_000
"""The addresses that were not seen for longest are forgotten: memory is constant."""


class SignInLimit:
    """Counts failed sign-ins by address, in this process."""

    def __init__(self, per_minute: int, clock: Clock) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._failed: OrderedDict[str, deque[float]] = OrderedDict()

    @contextmanager
    def trying(self, group: str) -> Generator[None]:
        """Count a sign-in as failed until its end, and after it if it raises `Unauthenticated`.

        Raises:
            TooManyRequests: The address failed too often, and does not get to try.
        """
        failed, began_s = self._begin(group)
        try:
            yield
        except Unauthenticated:
            raise
        except BaseException:
            _uncount(failed, began_s)
            raise
        _uncount(failed, began_s)

    def _begin(self, group: str) -> tuple[deque[float], float]:
        failed = self._failed.get(group)
        while failed and failed[0] <= self._clock.monotonic_s() - _WINDOW_S:
            failed.popleft()
        if failed is None:
            failed = self._failed[group] = deque()
            if len(self._failed) > _MAX_ADDRESSES:
                self._failed.popitem(last=False)
        if len(failed) >= self._per_minute:
            wait_s = failed[0] + _WINDOW_S - self._clock.monotonic_s()
            raise TooManyRequests(
                f"{self._per_minute} sign-ins from your address failed within a minute. Wait {max(wait_s, 1):.0f} s.",
                retry_after_s=max(wait_s, 1.0),
            )
        began_s = self._clock.monotonic_s()
        failed.append(began_s)
        self._failed.move_to_end(group)
        return failed, began_s


def _uncount(failed: deque[float], began_s: float) -> None:
    # One that took longer than the window is forgotten already.
    with suppress(ValueError):
        failed.remove(began_s)
