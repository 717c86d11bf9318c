"""Suspect runs of a worker: each executes in a child process of its own, so that it harms no other run.

The child (`nova_workers.worker.single_run`) is a worker for one run: it claims, renews, journals and ends it as any
worker does, with a session of its own. This side lets a fork server start it, and drains it.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Final, Protocol

import orjson
import structlog

from nova_workers.base.errors import Unavailable
from nova_workers.base.observability.metrics import Metrics
from nova_workers.contracts.ports import Dispatcher
from nova_workers.contracts.runs import Doorbell
from nova_workers.domain.runs.sql.fairness import NextSuspects, take_suspects
from nova_workers.ledger.database import Database

_log = structlog.get_logger(__name__)

MOST_CHILDREN: Final = 2
"""Child processes of a worker at once. Each takes up to as much memory as a worker, and a run of its own takes a core
where it ends its process at once, time and again."""

MAKE_WAY: Final = b"make way\n"
"""The line on the child's standard input that asks it to requeue its run once that is suspect no more."""

_PROGRAM: Final = ("-m", "nova_workers.devstack.run_module", "nova_workers.worker.single_run")
"""By name, as whatever starts processes of the fleet: it is above this room."""

_START_S: Final = 5.0
"""The time from the reservation of a run to its claim. A child that takes longer may meet another worker's, and one of
the two finds nothing; a run whose worker ends meanwhile is rung for that much later."""

_ASK_AGAIN_S: Final = 0.5

_IDLE_S: Final = 60.0
"""A fleet that recovers has suspects for minutes, one after another; afterwards it has none for weeks."""


TakeSuspects = Callable[[Collection[str], int], Awaitable[NextSuspects]]
"""Reserves the suspects that go next: of these threads, at most so many. Raises `Unavailable`."""


class SingleRun(Protocol):
    """A child process that executes one run."""

    def make_way(self) -> None:
        """Ask it to requeue its run after the first step that clears the run. Returns at once."""
        ...

    def drain(self) -> None:
        """Ask it to drain, as a worker does on SIGTERM. Returns at once."""
        ...

    async def ended(self) -> int | None:
        """Wait for its end, and return its exit code; that of a signal is negative, and None is unknown."""
        ...


class SingleRunProcess:
    """A child process, which reads its connection: the doorbell, `MAKE_WAY`, and its end, which begins the drain.

    So it also drains when this process is killed, and needs no signal that the kernel would send for the end of the
    thread that started it. The fork server writes the exit code to the connection.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, on_end: Callable[[], None]) -> None:
        self._reader = reader
        self._writer = writer
        self._on_end = on_end

    def execute(self, bell: Doorbell) -> None:
        """Let it execute the next run of the doorbell's thread. Returns at once."""
        self._write(orjson.dumps([bell.run_id, bell.thread_id, bell.queue]) + b"\n")

    def make_way(self) -> None:
        """Ask it to requeue its run after the first step that clears the run. Returns at once."""
        self._write(MAKE_WAY)

    def drain(self) -> None:
        """Ask it to drain, as a worker does on SIGTERM. Returns at once."""
        if self._writer.can_write_eof() and not self._writer.is_closing():
            self._writer.write_eof()

    async def ended(self) -> int | None:
        """Wait for its end, and return its exit code; that of a signal is negative. None if the fork server ended."""
        try:
            line = await self._reader.readline()
        except ConnectionError:
            line = b""
        finally:
            self._writer.close()
            self._on_end()
        return int(line) if line else None

    def _write(self, line: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(line)


class ForkServer:
    """Starts child processes as forks of one that has imported what they need, in milliseconds each.

    That process starts with the first child, and takes the memory of an idle worker. It ends some time after its last
    child, and with this process, also when this is killed: it reads the end of its standard input. It has one thread,
    no event loop and no connection (`nova_workers.worker.fork_server`), so a fork of it is as clean as a new process.
    """

    def __init__(
        self,
        program: Sequence[str] = _PROGRAM,
        *,
        modules: Callable[[], Sequence[str]] = tuple,
        idle_s: float = _IDLE_S,
    ) -> None:
        """Start nothing.

        Args:
            program: The arguments of Python for the fork server.
            modules: Returns what it imports before it forks a child, beside its own modules.
            idle_s: How long it stays after the end of its last child.
        """
        self._command = (sys.executable, *program)
        self.modules = modules
        self._idle_s = idle_s
        self._starting = asyncio.Lock()
        self._process: Process | None = None
        self._control: socket.socket | None = None
        self._children = 0
        self._stopping: asyncio.TimerHandle | None = None

    async def start(self, bell: Doorbell) -> SingleRunProcess:
        """Start a child for the next run of the doorbell's thread.

        Raises:
            OSError: The machine has no process or memory left, or the fork server just ended.
        """
        control = await self._connected()
        try:
            ours, its = socket.socketpair()
            with its:
                try:
                    socket.send_fds(control, [orjson.dumps(self.modules())], [its.fileno()])
                    reader, writer = await asyncio.open_unix_connection(sock=ours)
                except BaseException:
                    ours.close()
                    raise
        except BaseException:
            self._on_end()
            raise
        child = SingleRunProcess(reader, writer, self._on_end)
        child.execute(bell)
        return child

    async def close(self) -> None:
        """End the fork server. Children that there still are end by themselves."""
        self._stop()
        if self._process is not None and self._process.returncode is None:
            # It may be importing.
            self._process.kill()
            await self._process.wait()

    async def _connected(self) -> socket.socket:
        """Return the socket of a fork server that lives, and count a child of it."""
        async with self._starting:
            if self._stopping is not None:
                self._stopping.cancel()
            if self._control is None or self._process is None or self._process.returncode is not None:
                self._stop()
                # Each datagram is a request, and carries the child's end of its connection.
                ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                ours.setblocking(False)
                with its:
                    self._process = await asyncio.create_subprocess_exec(
                        *self._command,
                        stdin=its.fileno(),
                        # What ends this process and its group, such as a supervisor that restarts it, is not the fault
                        # of the runs.
                        start_new_session=True,
                    )
                self._control = ours
                _log.info("suspect.fork_server_started", pid=self._process.pid)
            self._children += 1
            return self._control

    def _on_end(self) -> None:
        self._children -= 1
        if not self._children:
            self._stopping = asyncio.get_running_loop().call_later(self._idle_s, self._stop)

    def _stop(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None


class SuspectRuns:
    """Executes suspect runs, at most `MOST_CHILDREN` at a time; the doorbells of further ones wait here, in no slot.

    Each worker gets the doorbells of most suspects, since the reconciler rings again for those that wait. So whenever a
    child may start, the ledger decides: what another worker executes by then is dropped, and of the rest the run that
    goes next is reserved for the child. If this process ends, the reconciler rings again, as for any queued run.
    """

    def __init__(
        self,
        start: Callable[[Doorbell], Awaitable[SingleRun]],
        take: TakeSuspects,
        dispatcher: Dispatcher,
        metrics: Metrics,
    ) -> None:
        self._start = start
        self._take = take
        self._dispatcher = dispatcher
        self._metrics = metrics
        self._waiting: dict[str, Doorbell] = {}
        self._asked: dict[str, Doorbell] = {}
        """Doorbells about which the ledger is asked."""
        self._again: dict[str, Doorbell] = {}
        """Doorbells that came while their thread had a child."""
        self._choosing: asyncio.Task[None] | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._children: dict[str, SingleRun] = {}
        self._draining = False

    @property
    def thread_ids(self) -> frozenset[str]:
        """Threads whose next run executes in a child, or waits for one."""
        return frozenset((*self._waiting, *self._asked, *self._tasks))

    @property
    def executing(self) -> int:
        """How many children there are."""
        return len(self._tasks)

    def execute(self, bell: Doorbell) -> None:
        """Execute the next run of a thread in a child, as soon as there may be another one. Returns at once."""
        if self._draining:
            self._dispatcher.ring_runs([bell])
        elif bell.thread_id in self._tasks:
            # The child may have ended its run already, and this doorbell be of the next one.
            self._again[bell.thread_id] = bell
        else:
            self._waiting.setdefault(bell.thread_id, bell)
            self._begin()

    def drain(self) -> None:
        """Start no more children, drain those that there are, and pass on the doorbells that wait."""
        self._draining = True
        if self._choosing is not None:
            self._choosing.cancel()
        self._dispatcher.ring_runs([*self._asked.values(), *self._waiting.values()])
        self._asked.clear()
        self._waiting.clear()
        for child in self._children.values():
            child.drain()

    async def ended(self) -> None:
        """Wait for the end of all children."""
        while self._tasks:
            await asyncio.wait(self._tasks.values())

    def _begin(self) -> None:
        if not self._waiting:
            return
        if len(self._tasks) >= MOST_CHILDREN:
            for child in self._children.values():
                child.make_way()
        elif self._choosing is None:
            self._choosing = asyncio.create_task(self._choose(), name="suspects")
            self._choosing.add_done_callback(self._on_chosen)

    async def _choose(self) -> None:
        """Start children for the suspects that go next, as long as there may be more of both."""
        is_away = False
        while self._waiting and (free := MOST_CHILDREN - len(self._tasks)) > 0:
            self._asked, self._waiting = self._waiting, {}
            try:
                next_ones = await self._take([*self._asked], free)
                is_away = False
            except Unavailable as error:
                if not is_away:
                    _log.warning("suspect.waits", outage="postgres", suspects=len(self._asked), error=str(error))
                is_away = True
                next_ones = NextSuspects(waiting=frozenset(self._asked))
            # A doorbell that came meanwhile is asked about again: its thread may have changed since the answer.
            still = {thread_id: bell for thread_id, bell in self._asked.items() if thread_id in next_ones.waiting}
            self._waiting = {**still, **self._waiting}
            self._asked = {}
            for bell in next_ones.taken:
                task = asyncio.create_task(self._execute(bell), name="single_run")
                self._tasks[bell.thread_id] = task
                task.add_done_callback(partial(self._on_end, bell.thread_id))
                # As one that comes from now on.
                if (later := self._waiting.pop(bell.thread_id, None)) is not None:
                    self._again[bell.thread_id] = later
            if still and not next_ones.taken:
                await asyncio.sleep(_ASK_AGAIN_S)

    def _on_chosen(self, task: asyncio.Task[None]) -> None:
        self._choosing = None
        if not task.cancelled() and (error := task.exception()) is not None:
            # For the reconciler, which rings again.
            _log.error("suspect.not_chosen", suspects=len(self._asked), exc_info=error)
            self._asked.clear()
        if not self._draining:
            self._begin()

    def _on_end(self, thread_id: str, _task: asyncio.Task[None]) -> None:
        self._children.pop(thread_id, None)
        del self._tasks[thread_id]
        if (bell := self._again.pop(thread_id, None)) is not None:
            self.execute(bell)
        elif not self._draining:
            self._begin()

    async def _execute(self, bell: Doorbell) -> None:
        try:
            child = await self._start(bell)
        except OSError as error:
            # For the reconciler, which rings again.
            _log.warning("suspect.not_started", run_id=bell.run_id, thread_id=bell.thread_id, error=str(error))
            return
        self._children[bell.thread_id] = child
        _log.info("suspect.started", run_id=bell.run_id, thread_id=bell.thread_id, children=len(self._children))
        if self._draining:
            child.drain()
        elif self._waiting:
            child.make_way()
        code = await child.ended()
        self._metrics.suspects.labels("ended" if code == 0 else "lost").inc()
        if code != 0:
            _log.warning("suspect.lost", run_id=bell.run_id, thread_id=bell.thread_id, exit_code=code)


def taking_from(database: Database) -> TakeSuspects:
    """Return the function that reserves suspects in the ledger."""

    async def take(thread_ids: Collection[str], most: int) -> NextSuspects:
        async with database.connection() as connection:
            return await take_suspects(connection, thread_ids, most=most, start_s=_START_S)

    return take
