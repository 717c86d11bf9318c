"""What is live of a page: all of it.

``<main>`` and the title are fetched again, whole: at each `RENEW` of the page's stream of server-sent events (of
pages that show many things, by `news`), or each so many seconds (``data-refresh``). So no part of a page is older than
another. A conversation and a tried message, whose text grows, get lists of changes to elements by id.

`static/js/live.js` is the other end: an element with ``data-stream`` opens the address, and applies what comes. After
a break it asks again with the id of the last event that it has (`resume_id`).
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Literal, TypeVar, cast

import orjson
import structlog
from anyio import CancelScope
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from nova_workers.base.errors import NovaError
from nova_workers.base.stopping import stop_tasks
from nova_workers.console.fleet_watch import FleetWatch

E = TypeVar("E")

COALESCE_S = 0.03
"""Changes of this time are sent together: a screen shows no more."""
HEARTBEAT_S = 15.0
"""Below the idle timeout of common proxies, 30 to 60 s."""
RENEW_S = 0.3
"""A part of a page that is read again as a whole is so after this pause at the earliest."""

Action = Literal[
    "replace", "inner", "append", "prepend", "remove", "show", "hide", "title", "renew", "refresh", "needs"
]


_WHOLE = frozenset({"replace", "renew"})


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the element with an id.

    Attributes:
        action: ``replace`` and ``inner`` keep unchanged elements, focus and open folds; ``append`` and ``prepend`` add
            to its children, unless an element with the new one's id is there already; ``show`` and ``hide`` need no
            HTML. ``title`` sets the page's title, ``renew`` fetches the page again, and so does ``refresh``, which
            keeps what an action reported; ``needs`` is what needs a person, as JSON. These have no target.
        target: The element's id.
        html: Made by templates.
        id: Where the stream resumes after a break, such as an event cursor; of the last change of an event.
    """

    action: Action
    target: str
    html: str = ""
    id: str | None = None


RENEW: Final = Change("renew", "")
"""Makes the browser fetch the page again, and show what is new in it."""
DONE: Final = Change("remove", "")
"""Ends the stream: the browser closes it and does not come back."""


def resume_id(request: Request) -> str | None:
    """Return the id of the last change that the browser has; None at the first visit."""
    return request.headers.get("last-event-id") or request.query_params.get("after") or None


AWAY: Final = "away"
"""The id of the banner that says that the fleet does not answer."""


def stream(watch: FleetWatch, changes: AsyncGenerator[Change]) -> StreamingResponse:
    """Return a response that sends changes until they end, and meanwhile whether the fleet answers.

    Closing the page closes the generator. An error of the API ends it; the browser then comes back after a pause. Yield
    `DONE` where nothing follows.
    """
    return _EventStream(
        _events(watch, changes),
        media_type="text/event-stream",
        headers={"x-accel-buffering": "no", "cache-control": "no-store"},
    )


class _EventStream(StreamingResponse):
    """Closes its generator also where a browser leaves while a frame is sent: the generator does not see that."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(cast(AsyncGenerator[bytes], self.body_iterator)):
            await super().__call__(scope, receive, send)


async def renewals(
    events: AsyncGenerator[E], is_news: Callable[[E], bool], *, pause_s: float = RENEW_S
) -> AsyncGenerator[None]:
    """Yield whenever what the page shows has to be read again, until the events end.

    Between two renewals is a pause, and a renewal stands for all news before it: a stream that begins with a hundred
    old events causes one. After the last news there always is one.

    Args:
        events: What happens, such as a client's event stream. It is read also while the caller renews the page.
        is_news: Whether an event changes what the page shows.
        pause_s: The shortest time between two renewals.

    Raises:
        NovaError: The events ended with an error.
    """
    unread = asyncio.Event()
    reader = asyncio.create_task(_note(events, is_news, unread))
    tasks: list[asyncio.Task[object]] = [reader]
    loop = asyncio.get_running_loop()
    # The page was read just before it opened its stream.
    due_at = loop.time() + pause_s
    try:
        while True:
            tasks = [reader, asyncio.create_task(unread.wait())]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            tasks.pop().cancel()
            if not unread.is_set():
                break
            await asyncio.wait({reader}, timeout=max(0.0, due_at - loop.time()))
            unread.clear()
            yield
            due_at = loop.time() + pause_s
        reader.result()
    finally:
        await stop_tasks(tasks)


async def _note(events: AsyncGenerator[E], is_news: Callable[[E], bool], unread: asyncio.Event) -> None:
    async with aclosing(events) as source:
        async for event in source:
            if is_news(event):
                unread.set()


async def _events(watch: FleetWatch, changes: AsyncGenerator[Change]) -> AsyncIterator[bytes]:
    queue: asyncio.Queue[Change | None] = asyncio.Queue(maxsize=1_000)
    tasks = [asyncio.create_task(_read(changes, queue)), asyncio.create_task(_note_absence(watch, queue))]
    loop = asyncio.get_running_loop()
    sent_at = -COALESCE_S
    try:
        # Opens the stream at once, also through proxies that wait for a first byte.
        yield b"retry: 2000\n: open\n\n"
        while True:
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    first = await queue.get()
            except TimeoutError:
                yield b": still here\n\n"
                continue
            batch = await _more(queue, first, until=sent_at + COALESCE_S)
            if sent := [change for change in batch if change is not None and change is not DONE]:
                yield _frame(sent)
                sent_at = loop.time()
            if DONE in batch:
                yield b"event: done\ndata: {}\n\n"
            if DONE in batch or None in batch:
                return
    finally:
        # Where the browser left, the scope of the response is canceled, and with it all that it waits for.
        with CancelScope(shield=True):
            await stop_tasks(tasks)


async def _read(changes: AsyncGenerator[Change], queue: asyncio.Queue[Change | None]) -> None:
    """Put changes into the queue, and None after the last."""
    try:
        async with aclosing(changes) as source:
            async for change in source:
                await queue.put(change)
    except NovaError as error:
        structlog.get_logger().info("console_stream_ended", code=error.code, detail=error.message)
    except Exception:
        structlog.get_logger().exception("console_stream_failed")
    await queue.put(None)


async def _note_absence(watch: FleetWatch, queue: asyncio.Queue[Change | None]) -> None:
    async with aclosing(watch.changes()) as answers:
        async for it_answers in answers:
            await queue.put(Change("hide" if it_answers else "show", AWAY))


async def _more(queue: asyncio.Queue[Change | None], first: Change | None, *, until: float) -> list[Change | None]:
    """Return a change and those that follow it until a time; the first one after a pause does not wait."""
    batch = [first]
    while batch[-1] is not None and batch[-1] is not DONE:
        try:
            async with asyncio.timeout_at(until):
                batch.append(queue.get_nowait() if not queue.empty() else await queue.get())
        except TimeoutError:
            break
    return batch


def _frame(changes: list[Change]) -> bytes:
    # A later replacement of the same element makes an earlier one pointless.
    last = {change.target: at for at, change in enumerate(changes) if change.action in _WHOLE}
    kept = [c for at, c in enumerate(changes) if c.action not in _WHOLE or last[c.target] == at]
    data = orjson.dumps([[change.action, change.target, change.html] for change in kept])
    ids = [change.id for change in changes if change.id is not None]
    return (f"id: {ids[-1]}\n".encode() if ids else b"") + b"data: " + data + b"\n\n"
