"""Embeddings on this machine, in one child process that does not slow down turns.

The model takes 1.5 to 37 ms of CPU per window and 180 MB: on the event loop it would block every turn of the process,
in a thread it would hold the interpreter's lock and stay in the worker's memory. So it runs in a child of low priority
that is started for the first text, replaced when it dies, and stopped after an idle time.

The child has its own session: Ctrl-C and signals to the worker's process group do not reach it. It ends when its stdin
ends, so it cannot outlive this process. It keeps no state, so it can be killed at any time.

On a busy machine it also pauses: what the child waited for the processor, turns have used. A low priority alone gives
it a tenth of the machine and more, since its share is counted for each core and turns do not fill each.
"""

import array
import asyncio
import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import structlog

from nova_workers.base.errors import ConfigurationError, InvalidInput, Unavailable
from nova_workers.domain.effects.rules.provider import Vector

_CHILD: Final = Path(__file__).with_name("minilm.py")
_KEPT_ENVIRONMENT: Final = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "TMPDIR")
_CHILD_ENVIRONMENT: Final = {
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    # Large blocks go back to the system when they are freed: 180 MB instead of 220 (measured).
    "MALLOC_MMAP_THRESHOLD_": "1048576",
}
_EXCHANGE_TEXTS: Final = 16
_EXCHANGE_CHARS: Final = 1_000
"""Most texts per exchange with the child, and most characters of several. Callers alternate, so that a query waits for
one exchange and not for a whole batch: of CPU 25 ms for 16 short texts, 60 for 12 sentences, 150 for a long text
(measured)."""

_VECTORS_AT: Final = 1 + struct.calcsize("<f")
"""Where the vectors of an answer begin: after its kind and the seconds of CPU that it took."""
_PAUSE_FACTOR: Final = 8.0
"""Seconds of pause for each second that the child waited for the processor."""
_MAX_PAUSED_S: Final = 10.0
"""The longest pause, and the most time of one call that is spent in pauses."""

_log = structlog.get_logger(__name__)


class _ChildDied(Exception):
    """The child ended in the middle of a request."""


class LocalEmbeddings:
    """all-MiniLM-L6-v2 in int8, from wheels; nothing is downloaded at run time."""

    model = "all-MiniLM-L6-v2-onnx-int8"
    dimensions = 384

    def __init__(self, *, timeout_s: float = 60.0, idle_s: float = 300.0) -> None:
        """Keep the bounds; the child is started by the first text.

        Args:
            timeout_s: Most time of one call of `embed`; then the child is replaced.
            idle_s: The child is stopped after this long without a text.
        """
        self._timeout_s = timeout_s
        self._idle_s = idle_s
        self._child: subprocess.Popen[bytes] | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embeddings")
        self._idle_timer: asyncio.TimerHandle | None = None
        self._calls = 0
        self._closed = asyncio.Event()
        self._resumes_s = 0.0
        """When several texts may be computed again, by the monotonic clock."""

    @property
    def child_pid(self) -> int | None:
        """The child's process id, None while there is none."""
        return None if self._child is None else self._child.pid

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """Return one vector of 384 numbers a text. See `EmbeddingProvider.embed`.

        A single text does not wait for the end of a pause: it may be the query of a search.
        """
        if not texts:
            return []
        vectors: list[Vector] = []
        may_pause_s = _MAX_PAUSED_S if len(texts) > 1 else 0.0
        self._begin_call()
        try:
            async with asyncio.timeout(self._timeout_s):
                for few in _exchanges(texts):
                    pause_s = min(max(self._resumes_s - time.monotonic(), 0.0), may_pause_s)
                    if pause_s:
                        may_pause_s -= pause_s
                        await self._pause(pause_s)
                    self._check_open()
                    body = json.dumps(few).encode()
                    answer = await asyncio.get_running_loop().run_in_executor(self._thread, self._ask, body)
                    vectors += self._vectors(answer, len(few))
        except TimeoutError as error:
            self._kill()
            raise Unavailable(
                f"The embedding process did not answer for {self._timeout_s:g} s and was stopped; "
                "the next call restarts it.",
                texts=len(texts),
            ) from error
        finally:
            self._end_call()
        return vectors

    async def close(self) -> None:
        """Kill the child; a call in progress fails."""
        self._closed.set()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._kill()
        await asyncio.to_thread(self._thread.shutdown)
        self._reap()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise Unavailable("The embedding process was closed before it answered.")

    async def _pause(self, pause_s: float) -> None:
        try:
            async with asyncio.timeout(pause_s):
                await self._closed.wait()
        except TimeoutError:
            return

    def _vectors(self, answer: bytes, count: int) -> list[Vector]:
        if answer[:1] != b"V":
            raise InvalidInput(
                f"The embedding model refused a text: {answer[1:].decode(errors='replace')}", field="text"
            )
        numbers = array.array("f")
        numbers.frombytes(answer[_VECTORS_AT:])
        if sys.byteorder == "big":
            numbers.byteswap()
        if len(numbers) != count * self.dimensions:
            raise Unavailable(f"The embedding process gave {len(numbers)} numbers for {count} texts.")
        return [numbers[i : i + self.dimensions] for i in range(0, len(numbers), self.dimensions)]

    # The methods below run on the child's thread, except `_kill`.

    def _ask(self, body: bytes) -> bytes:
        for last in (False, True):
            self._check_open()
            try:
                return self._exchange(body)
            except (_ChildDied, BrokenPipeError) as error:
                status = self._reap()
                if self._closed.is_set() or last:
                    raise Unavailable(
                        f"The embedding process ended (status {status}) before it answered; the next call restarts it.",
                        status=status,
                    ) from error
                _log.warning("embeddings.child_replaced", status=status)
        raise AssertionError("unreachable")

    def _exchange(self, body: bytes) -> bytes:
        child = self._child
        if child is not None and child.poll() is not None:
            self._reap()
            child = None
        if child is None:
            child = self._child = _start()
        assert child.stdin is not None  # noqa: S101 - both are pipes
        assert child.stdout is not None  # noqa: S101
        began_s = time.monotonic()
        child.stdin.write(struct.pack(">I", len(body)) + body)
        child.stdin.flush()
        head = child.stdout.read(4)
        if len(head) < 4:
            raise _ChildDied
        size = struct.unpack(">I", head)[0]
        answer = child.stdout.read(size)
        if len(answer) < size:
            raise _ChildDied
        if answer[:1] == b"V":
            ended_s = time.monotonic()
            computed_s: float = struct.unpack("<f", answer[1:_VECTORS_AT])[0]
            pause_s = min(_PAUSE_FACTOR * max(ended_s - began_s - computed_s, 0.0), _MAX_PAUSED_S)
            self._resumes_s = max(self._resumes_s, ended_s + pause_s)
        return answer

    def _reap(self) -> int | None:
        child, self._child = self._child, None
        if child is None:
            return None
        child.kill()
        status = child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue
        return status

    def _kill(self) -> None:
        # Thread-safe: the pipe breaks, which ends the read on the child's thread.
        child = self._child
        if child is not None:
            child.kill()

    def _begin_call(self) -> None:
        self._calls += 1
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def _end_call(self) -> None:
        self._calls -= 1
        if self._calls == 0 and not self._closed.is_set():
            self._idle_timer = asyncio.get_running_loop().call_later(self._idle_s, self._stop_child)

    def _stop_child(self) -> None:
        self._thread.submit(self._reap)


def _exchanges(texts: Sequence[str]) -> Iterator[list[str]]:
    """Cut the texts, in their order, into those of one exchange each."""
    few: list[str] = []
    chars = 0
    for text in texts:
        chars += len(text)
        if few and (len(few) == _EXCHANGE_TEXTS or chars > _EXCHANGE_CHARS):
            yield few
            few, chars = [], len(text)
        few.append(text)
    yield few


def _start() -> subprocess.Popen[bytes]:
    environment = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    try:
        # -P: the modules beside the script must not hide those of its libraries.
        child = subprocess.Popen(  # noqa: S603 - our own interpreter and our own file
            [sys.executable, "-P", str(_CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env={**environment, **_CHILD_ENVIRONMENT},
        )
    except OSError as error:
        raise ConfigurationError(f"The embedding process cannot be started: {error}", command=sys.executable) from error
    _log.info("embeddings.child_started", child_pid=child.pid)
    return child
