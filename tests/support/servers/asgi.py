"""Applications on loopback, served by uvicorn in the test's own loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import uvicorn

from tests.support.waiting import until


def loopback_listener(port: int = 0) -> socket.socket:
    """Return a socket that listens on loopback.

    Its protocol is set to TCP, unlike with `socket.create_server`: otherwise asyncio leaves Nagle's algorithm on, and
    each answer on a reused connection comes 40 ms late.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    return listener


@asynccontextmanager
async def serving(
    app: Any, *, port: int = 0, patient: bool = False, http: str | type[asyncio.Protocol] = "auto"
) -> AsyncGenerator[str]:
    """Serve an ASGI application until the block ends, and give its URL.

    By the parts of `uvicorn.Server.serve`, which would take the test runner's signals and look at a flag ten times a
    second.

    Args:
        app: What is served, with its lifespan if it has one.
        port: Where; 0 for a free port.
        patient: Whether the application's shutdown and requests under way are waited for, up to 1 s.
        http: The protocol; by default uvicorn's choice.
    """
    listener = loopback_listener(port)
    config = uvicorn.Config(
        app,
        http=http,
        log_config=None,
        access_log=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1 if patient else 0,
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listener])
    await server.on_tick(0)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        await _stop(server, listener, patient=patient)


async def _stop(server: uvicorn.Server, listener: socket.socket, *, patient: bool) -> None:
    """Do what `uvicorn.Server.shutdown` does, without its pause of 0.1 s where nothing is under way."""
    for each in server.servers:
        each.close()
    listener.close()
    state = server.server_state
    for connection in list(state.connections):
        connection.shutdown()
    with suppress(AssertionError):
        await until(lambda: not state.connections and not state.tasks, timeout_s=1.1 if patient else 0.1)
    for task in state.tasks:
        task.cancel("the server ends")
    if patient:
        await server.lifespan.shutdown()
