"""Connects to an MCP server that is a child process and speaks in lines of JSON.

In place of the transport of the MCP library, which reads a line of any length, and joins its pieces at a cost that
grows with the square of it: a line of 300 MB held a worker for minutes.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Final, TextIO

import anyio
import structlog
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter

from nova_workers.base.child_process import end_supervised, supervised
from nova_workers.contracts.engine import StdioMcpServer
from nova_workers.engines.lines import LineTooLong, read_lines
from nova_workers.engines.mcp.agent_lane import AgentLane, UnreadableLine
from nova_workers.shell_sandbox import Enclosed, NoSandbox, ShellSandbox

_log = structlog.get_logger(__name__)

_MAX_LINE_BYTES: Final = 8_000_000
_EXIT_S: Final = 2.0
"""The time for a server to exit after its input closed."""
_GRACE_S: Final = 1.5
"""The time for a server to exit after SIGTERM; then its supervisor kills it."""

_ENCLOSED_HOME: Final = "/tmp"  # noqa: S108 - a directory of the sandbox, which is its own

_Outgoing = MemoryObjectReceiveStream[SessionMessage]
_Incoming = MemoryObjectSendStream[SessionMessage | Exception]
Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


@asynccontextmanager
async def stdio_transport(
    server: StdioMcpServer,
    errors: TextIO,
    sandbox: ShellSandbox | NoSandbox | None = None,
    *,
    lane: AgentLane | None = None,
    on_end: Callable[[], None] = lambda: None,
) -> AsyncGenerator[Streams]:
    """Start a server, and connect to it. It and its children end with the connection or with this process.

    Args:
        errors: Takes what it writes to stderr.
        sandbox: Encloses it, if its tenant has ceilings; otherwise hides NOVA_HOME from it.
        lane: Carries calls of agents, if the server has such.
        on_end: Called when its output ended, which is mostly its own end.

    Raises:
        OSError: It cannot be started.
        ConnectionError: It needs a sandbox, and there is none.
        ValueError: Its working directory is outside the directories of its tenant.
    """
    environment = {**get_default_environment(), **server.env}
    environment.setdefault("PATH", os.defpath)
    with _confined(server, environment, sandbox) as line:
        process = await asyncio.create_subprocess_exec(
            *supervised(line.command, {**environment, **line.environment}, grace_s=_GRACE_S, own_session=False),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env={**environment, **line.environment},
            cwd=server.cwd,
            pass_fds=line.descriptors,
            start_new_session=True,
        )
        async with _streams(process, lane or AgentLane(), on_end) as streams:
            yield streams


@asynccontextmanager
async def _streams(
    process: asyncio.subprocess.Process, lane: AgentLane, on_end: Callable[[], None]
) -> AsyncGenerator[Streams]:
    """Carry messages to and from a server; end it at the end."""
    incoming, to_session = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    from_session, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    assert process.stdin is not None  # noqa: S101 - it was asked for as a pipe
    lane.open(process.stdin)
    try:
        async with anyio.create_task_group() as tasks:
            # Not canceled with the session, so that a server can write the rest and exit.
            draining = anyio.CancelScope(shield=True)
            drained = anyio.Event()
            tasks.start_soon(partial(_read, process, incoming, draining, drained, lane=lane, on_end=on_end))
            tasks.start_soon(_write, process, outgoing, incoming)
            try:
                yield to_session, from_session
            finally:
                # The session reads no more, and a server that waits for a reader does not exit.
                to_session.close()
                with anyio.CancelScope(shield=True):
                    await _stop(process)
                    with anyio.move_on_after(_EXIT_S):
                        await drained.wait()
                    draining.cancel()
                    # A process that the server left behind may keep the pipe open for ever, and there is no public way
                    # to close this end.
                    process._transport.close()  # pyright: ignore[reportAttributeAccessIssue]
                tasks.cancel_scope.cancel()
    finally:
        for stream in (incoming, to_session, from_session, outgoing):
            stream.close()


@contextmanager
def _confined(
    server: StdioMcpServer, environment: dict[str, str], sandbox: ShellSandbox | NoSandbox | None
) -> Generator[Enclosed]:
    command = [server.command, *server.args]
    enclosure = server.enclosure
    if enclosure is not None and enclosure.sandbox:
        if not isinstance(sandbox, ShellSandbox):
            raise ConnectionError(f"It runs in the sandbox, and this worker has none. {(sandbox or NoSandbox()).why}")
        # Its own home is hidden.
        environment["HOME"] = _ENCLOSED_HOME
        writable = (*(() if server.cwd is None else (server.cwd,)), *server.writable)
        cwd = server.cwd or _ENCLOSED_HOME
        with sandbox.enclosed(command, enclosure, cwd=cwd, writable=writable, readable=server.readable) as enclosed:
            yield enclosed
    elif isinstance(sandbox, ShellSandbox):
        yield Enclosed(sandbox.hide(command, server.cwd or os.getcwd(), readable=server.readable), ())
    else:
        yield Enclosed(command, ())


async def _read(
    process: asyncio.subprocess.Process,
    incoming: _Incoming,
    draining: anyio.CancelScope,
    drained: anyio.Event,
    *,
    lane: AgentLane,
    on_end: Callable[[], None],
) -> None:
    assert process.stdout is not None  # noqa: S101 - it was asked for as a pipe
    async with incoming:
        try:
            async for line in read_lines(process.stdout, _MAX_LINE_BYTES):
                if line.strip() and not lane.take(line):
                    await incoming.send(_parsed(line))
        except (LineTooLong, UnreadableLine) as error:
            # The session ends with its stream.
            _log.warning("mcp_server_line_refused", problem=str(error))
            end_supervised(process)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            _log.debug("mcp_session_ended")
    on_end()
    # What the server still writes is dropped, so that it can exit.
    with draining:
        while await process.stdout.read(1 << 16):
            pass
    drained.set()


def _parsed(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


async def _write(process: asyncio.subprocess.Process, outgoing: _Outgoing, incoming: _Incoming) -> None:
    assert process.stdin is not None  # noqa: S101 - it was asked for as a pipe
    try:
        async for message in outgoing:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.stdin.write(text.encode() + b"\n")
            await process.stdin.drain()
    except (OSError, RuntimeError):
        # The server may be alive: a session whose requests go nowhere must end.
        incoming.close()


async def _stop(process: asyncio.subprocess.Process) -> None:
    """End the server: by the end of its input, then by SIGTERM, then by its supervisor."""
    assert process.stdin is not None  # noqa: S101 - it was asked for as a pipe
    process.stdin.close()
    if await _exits(process, _EXIT_S):
        return
    end_supervised(process)
    if not await _exits(process, _GRACE_S + _EXIT_S):
        with suppress(ProcessLookupError):
            process.kill()
        await _exits(process, _EXIT_S)


async def _exits(process: asyncio.subprocess.Process, within_s: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            await process.wait()
    return process.returncode is not None
