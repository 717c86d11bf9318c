"""Server-sent events: one response that follows one run, or one orchestration.

Leaner than `sse-starlette`'s (measured, see docs/decisions): no task group, lock or watcher per stream, and no
patch of the server. A heartbeat is a comment, which proxies see and clients ignore.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson
import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from nova_workers.base.errors import Unavailable
from nova_workers.base.observability.metrics import Metrics
from nova_workers.domain.orchestrations.sql.trees import TreeHead
from nova_workers.domain.runs.sql.reads import RunState
from nova_workers.domain.streams.rules.trees import TreeItem
from nova_workers.domain.streams.rules.wire import LiveEvent

from ..boundary import until_gone
from ..openapi import EVENT_STREAM
from .following import Ending, RunFollower, Target
from .following_trees import TreeFollower
from .stream_permits import StreamPermit
from .tree_delivery import TreeTarget

_log = structlog.get_logger(__name__)

_HEARTBEAT = b": heartbeat\n\n"
# `no-transform` and the nginx header keep proxies from gathering events into larger pieces.
_HEADERS = {"cache-control": "no-store, no-transform", "x-accel-buffering": "no"}


class EventStream(Response):
    """Events as they come, until the last one. Releases its permit when it ends, for any reason."""

    media_type = EVENT_STREAM

    def __init__(
        self,
        *,
        permit: StreamPermit,
        metrics: Metrics,
        heartbeat_s: float,
        about: Mapping[str, str],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Take what every stream needs; `about` names what is followed, for logs."""
        self._permit = permit
        self._metrics = metrics
        self._heartbeat_s = heartbeat_s
        self._about = about
        self.status_code = 200
        self.background = None
        self.body = b""
        self.init_headers({**_HEADERS, **(headers or {})})
        del self.headers["content-length"]

    async def follow(self, client: StreamClient) -> Ending:
        """Send what is followed to the client, until its end."""
        raise NotImplementedError

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        client = StreamClient(receive, send, self._heartbeat_s)
        self._metrics.open_streams.inc()
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            ending = await self.follow(client)
            if ending != "gone":
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except Unavailable as error:
            # The status was already sent. A client reconnects after a stream that ends without its final event.
            _log.warning("events.cut_short", **self._about, error=str(error))
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._metrics.open_streams.dec()
            await self._permit.free()


class RunEventStream(EventStream):
    """The events of a run, until its final one."""

    def __init__(
        self,
        target: Target,
        state: RunState,
        *,
        follower: RunFollower,
        permit: StreamPermit,
        metrics: Metrics,
        heartbeat_s: float,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        about = {"run_id": target.run_id}
        super().__init__(permit=permit, metrics=metrics, heartbeat_s=heartbeat_s, about=about, headers=headers)
        self._target = target
        self._state = state
        self._follower = follower

    async def follow(self, client: StreamClient) -> Ending:
        """Send the events."""
        return await self._follower.follow(self._target, self._state, client)


class TreeEventStream(EventStream):
    """The events of an orchestration, until its end."""

    def __init__(
        self,
        target: TreeTarget,
        head: TreeHead,
        *,
        follower: TreeFollower,
        permit: StreamPermit,
        metrics: Metrics,
        heartbeat_s: float,
    ) -> None:
        about = {"orchestration_id": target.orchestration_id}
        super().__init__(permit=permit, metrics=metrics, heartbeat_s=heartbeat_s, about=about)
        self._target = target
        self._head = head
        self._follower = follower

    async def follow(self, client: StreamClient) -> Ending:
        """Send the events."""
        return await self._follower.follow(self._target, self._head, client)


class StreamClient:
    """The client side of a response: writes frames and detects a disconnect."""

    def __init__(self, receive: Receive, send: Send, heartbeat_s: float) -> None:
        self.idle_every_s = heartbeat_s
        self._receive = receive
        self._send = send

    async def send(self, body: bytes) -> None:
        """Send the next bytes."""
        await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def on_events(self, events: Sequence[LiveEvent]) -> None:
        """Send the events of a run."""
        await self.send(b"".join(_frame(event) for event in events))

    async def on_items(self, items: Sequence[TreeItem]) -> None:
        """Send the events of an orchestration."""
        await self.send(b"".join(_tree_frame(item) for item in items))

    async def on_idle(self) -> None:
        """Send a heartbeat."""
        await self.send(_HEARTBEAT)

    async def until_gone(self) -> None:
        """Return once the client has disconnected."""
        await until_gone(self._receive)


def _frame(event: LiveEvent) -> bytes:
    kind: str = event.event["type"]
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (
        str(event.cursor).encode(),
        kind.encode(),
        orjson.dumps(event.event),
    )


def _tree_frame(item: TreeItem) -> bytes:
    kind: str = item.record["event"]["type"]
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (str(item.cursor).encode(), kind.encode(), orjson.dumps(item.record))
