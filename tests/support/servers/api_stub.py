"""A small server on loopback that follows the wire contract and gives the answers of a test.

It replaces the API only where a test needs the network to misbehave: streams that are cut, servers that
answer with errors. Everything else is tested on a real fleet.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from nova_workers.contracts.changes import Changed, Ready
from nova_workers.contracts.events import Event
from nova_workers.contracts.http.wire import RunView
from tests.support.servers.asgi import serving

Handler = Callable[[Request], Awaitable[Response]]


def run_view(**fields: Any) -> RunView:
    """Return a run with the given fields."""
    given = {
        "id": "run_1",
        "thread_id": "thr_1",
        "agent_id": "nova",
        "status": "queued",
        "queue": "interactive",
        "on_busy": "enqueue",
        "source": "api",
        "message": [{"type": "text", "text": "hi"}],
        "metadata": {},
        "attempt": 0,
        "created_at": datetime(2025, 1, 1, tzinfo=UTC),
    }
    return RunView.model_validate(given | fields)


def frame(cursor: str, event: Event) -> str:
    """Return an event as the API frames it."""
    return f"id: {cursor}\nevent: {event.type}\ndata: {event.model_dump_json()}\n\n"


CHANGES = tuple(
    f"id: {cursor}\nevent: {event.type}\ndata: {event.model_dump_json()}\n\n"
    for cursor, event in (
        ("a-1-0-1", Ready()),
        (
            "a-2-1-2",
            Changed(subject="run", id="run_1", change="queued", agent_id="nova", at=datetime(2026, 1, 1, tzinfo=UTC)),
        ),
    )
)
"""The beginning of a stream of changes, as the API frames it."""


class ApiStub:
    """Answers in the order of its script, and records its requests.

    Attributes:
        requests: Every request: method, path, headers and body.
    """

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self._answers: dict[tuple[str, str], list[Handler]] = {}
        self._asked: defaultdict[tuple[str, str], asyncio.Event] = defaultdict(asyncio.Event)

    def on(self, method: str, path: str, *answers: Handler) -> None:
        """Answer a path; with several answers each request takes the next, and the last one stays."""
        self._answers[method, path] = list(answers)

    def asked(self, method: str, path: str) -> list[dict[str, str]]:
        """Return the headers of every request to a path."""
        return [headers for verb, asked, headers, _ in self.requests if (verb, asked) == (method, path)]

    async def until_asked(self, method: str, path: str, timeout_s: float = 30.0) -> None:
        """Wait for the first request to a path."""
        async with asyncio.timeout(timeout_s):
            await self._asked[method, path].wait()

    async def answer(self, request: Request) -> Response:
        """Serve one request."""
        body = await request.body()
        self._asked[request.method, request.url.path].set()
        self.requests.append((request.method, request.url.path, dict(request.headers), body))
        answers = self._answers.get((request.method, request.url.path))
        if not answers:
            return Response(status_code=404)
        return await (answers.pop(0) if len(answers) > 1 else answers[0])(request)


def says(body: Any, status: int = 200) -> Handler:
    """Answer with a model, or with a problem document."""

    async def handle(_: Request) -> Response:
        return Response(body.model_dump_json(), status_code=status, media_type="application/json")

    return handle


def streams(*frames: str, cut: bool = False, hang: bool = False) -> Handler:
    """Answer with a stream that ends well, is cut in the middle of the response, or stays open with heartbeats.

    A client that blocks between heartbeats sees a signal at the next one, if it came just before the system call.
    """

    async def send() -> AsyncGenerator[str]:
        for part in frames:
            yield part
        while hang:
            await asyncio.sleep(1)
            yield ": heartbeat\n\n"
        if cut:
            raise ConnectionAbortedError("cut by the test")

    async def handle(_: Request) -> Response:
        return StreamingResponse(send(), media_type="text/event-stream")

    return handle


@asynccontextmanager
async def api_stub(port: int = 0) -> AsyncGenerator[ApiStub]:
    """Run a server on a free port of loopback."""
    wire = ApiStub()
    app = Starlette(routes=[Route("/{path:path}", wire.answer, methods=["GET", "POST", "PUT", "PATCH", "DELETE"])])
    async with serving(app, port=port) as wire.url:
        yield wire


def all_frames(events: Iterable[Event], attempt: int = 1) -> list[str]:
    """Return events as frames, numbered from 1."""
    return [frame(f"{attempt}-{seq}", event) for seq, event in enumerate(events, 1)]
