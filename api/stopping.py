"""Handles stop signals early enough to end open streams and waits.

uvicorn tells the application that it stops only once every response has ended; an event stream would keep it
waiting for as long as its run takes. So the signal is handled here as well, before uvicorn's own handler.
"""

import asyncio
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def on_stop_signal(on_stop: Callable[[], None]) -> Generator[None]:
    """Call `on_stop` on the running loop at SIGTERM or SIGINT, and then the previous signal handler.

    Outside the main thread, where Python accepts no signal handlers, this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def handle(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(on_stop)
        handler = before[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)

    for number in _SIGNALS:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is handle:
                signal.signal(number, handler)
