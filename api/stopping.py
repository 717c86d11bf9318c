"""Hears of a stop early enough to let go of those who wait.

uvicorn tells the application that it stops only once every response has ended; an event stream would keep it
waiting for as long as its run takes. So the signal is heard here as well, before uvicorn's own handler.
"""

import asyncio
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

__all__ = ["heard_stop"]

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def heard_stop(on_stop: Callable[[], None]) -> Generator[None]:
    """Call `on_stop` on the running loop when the process is told to stop, and then whoever else listens.

    Outside the main thread, where Python takes no signal handlers, this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def hear(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(on_stop)
        handler = before[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)

    for number in _SIGNALS:
        signal.signal(number, hear)
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is hear:
                signal.signal(number, handler)
