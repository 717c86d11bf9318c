"""The channel of a program: updates are JSON lines on stdin, replies are JSON lines on stdout.

Any program becomes a channel by starting this one and keeping an update until the line ``done`` names it.
"""

import asyncio
import json
import os
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import CancelledError
from contextlib import suppress

from pydantic import ValidationError

from nova_workers.base.errors import DeliveryFailed
from nova_workers.base.program import OutputFailed
from nova_workers.base.validation import place_of, problem_of
from nova_workers.channels.port import Origin, Reply, Update
from nova_workers.contracts.content import JsonObject

_MAX_LINE_BYTES = 16 << 20
_MAX_WAITING = 100
_CHUNK_BYTES = 1 << 16


class PipeChannel:
    """Implements `InboundChannel` on stdin and stdout."""

    max_file_bytes = 0

    def __init__(self, name: str, *, streams: bool) -> None:
        self.name = name
        self.streams = streams
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue(_MAX_WAITING)
        self._output_failed: OutputFailed | None = None

    async def updates(self) -> AsyncIterator[Update]:
        """See `InboundChannel.updates`. A line that is no update gets a refusal with the reason."""
        # A thread, since a file cannot be awaited; a daemon, since a read of a terminal cannot be interrupted.
        # Its descriptor is its own: it may read for longer than this channel is open.
        reading = (os.dup(sys.stdin.fileno()), asyncio.get_running_loop())
        threading.Thread(target=self._read, args=reading, daemon=True).start()
        while (line := await self._lines.get()) is not None:
            if len(line) > _MAX_LINE_BYTES:
                self._refuse(None, f"the line has more than {_MAX_LINE_BYTES} bytes")
                continue
            try:
                update = Update.model_validate_json(line)
            except ValidationError as error:
                first = error.errors(include_url=False)[0]
                self._refuse(_id_of(line), f"{place_of(first) or 'line'}: {problem_of(first, Update)}")
            else:
                yield update

    async def deliver(self, reply: Reply) -> None:
        """See `InboundChannel.deliver`."""
        self._write(reply.model_dump(mode="json"))

    async def done(self, update: Origin) -> None:
        """See `InboundChannel.done`."""
        self._write({"type": "done", "update_id": update.id})

    async def close(self) -> None:
        """See `InboundChannel.close`. Raises `OutputFailed` if stdout could not be written."""
        if self._output_failed is not None:
            raise self._output_failed

    def _read(self, stdin: int, loop: asyncio.AbstractEventLoop) -> None:
        # Not by `sys.stdin`: Python aborts if a thread still reads that at its exit.
        rest = bytearray()
        try:
            while chunk := os.read(stdin, _CHUNK_BYTES):
                *lines, tail = chunk.split(b"\n")
                for line in lines:
                    self._put(bytes(rest + line), loop)
                    rest.clear()
                # Of a line that is too long, one byte too many is kept, so that it is refused.
                rest += tail
                del rest[_MAX_LINE_BYTES + 1 :]
            self._put(bytes(rest), loop)
            self._put(None, loop)
        except (RuntimeError, CancelledError):
            # The loop has ended.
            return
        finally:
            os.close(stdin)

    def _put(self, line: bytes | None, loop: asyncio.AbstractEventLoop) -> None:
        if line is not None and not line.strip():
            return
        putting = self._lines.put(line)
        try:
            asyncio.run_coroutine_threadsafe(putting, loop).result()
        except RuntimeError:
            # The loop has ended, and never began it.
            putting.close()
            raise

    def _refuse(self, update_id: str | None, why: str) -> None:
        with suppress(DeliveryFailed):  # It ends the updates.
            self._write({"type": "refusal", "update_id": update_id, "text": f"This line is no update: {why}."})
            if update_id is not None:
                self._write({"type": "done", "update_id": update_id})

    def _write(self, line: JsonObject) -> None:
        if self._output_failed is not None:
            raise DeliveryFailed("The reader of stdout has left.", retryable=False)
        try:
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()
        except OutputFailed as error:
            # Without a reader no update is ever done, so end as at the end of stdin.
            self._output_failed = error
            while not self._lines.empty():
                self._lines.get_nowait()
            self._lines.put_nowait(None)
            raise DeliveryFailed(str(error), retryable=False) from error


def _id_of(line: bytes) -> str | None:
    try:
        found = json.loads(line)["id"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return found if isinstance(found, str) else None
