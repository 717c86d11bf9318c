"""Follow a run to its end; Ctrl-C cancels it."""

import asyncio
import signal
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager

from nova_workers.base.errors import IllegalTransition, NovaError
from nova_workers.cli.command import Session
from nova_workers.cli.talk.client_tools import LocalTools
from nova_workers.cli.talk.live import LiveView, cost_line
from nova_workers.cli.talk.missing_worker import missing_worker_noted
from nova_workers.cli.terminal.output import stamp
from nova_workers.contracts.events import EventCursor, Steered, StreamEnd, Waiting
from nova_workers.contracts.http.wire import NO_WORKER_ALIVE, REDIS_UNAVAILABLE, RunView
from nova_workers.contracts.queue_positions import count_before

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


class Interrupt:
    """Handles Ctrl-C while a run is followed: the first cancels the run, the second exits at once.

    A press before the run's id is known cancels the run as soon as it is.

    Attributes:
        pressed: Whether there was one.
        leaving: Whether there was a second, so that the command exits without waiting.
    """

    def __init__(self, session: Session, view: LiveView | None) -> None:
        self._session = session
        self._view = view
        self._run_id: str | None = None
        self._task: asyncio.Task[None] | None = None
        self._leave = asyncio.current_task()
        self.pressed = False
        self.leaving = False

    def arm(self, run_id: str) -> None:
        """Set the run that Ctrl-C cancels."""
        self._run_id = run_id
        if self.pressed:
            self._cancel(run_id)

    def press(self) -> None:
        """Handle one Ctrl-C."""
        if self.pressed and self._leave is not None:
            self.leaving = True
            self._leave.cancel()
            return
        self.pressed = True
        if self._run_id is not None:
            self._cancel(self._run_id)

    async def settle(self) -> None:
        """Wait until a started cancel request ends."""
        if self._task is not None:
            await self._task

    def _cancel(self, run_id: str) -> None:
        self._task = asyncio.get_running_loop().create_task(self._request_cancel(run_id))

    async def _request_cancel(self, run_id: str) -> None:
        if self._view is not None:
            self._view.doing("canceling; Ctrl-C again leaves at once")
        try:
            await self._session.client.runs.cancel(run_id)
        except IllegalTransition:
            pass  # The run ended meanwhile; the stream has its outcome.
        except NovaError as error:
            self._session.out.note(f"The cancel did not reach the run: {error.message}", "red")


@asynccontextmanager
async def on_interrupt(session: Session, view: LiveView | None = None) -> AsyncGenerator[Interrupt]:
    """Handle Ctrl-C with `Interrupt` inside the block."""
    interrupt = Interrupt(session, view)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, interrupt.press)
    try:
        yield interrupt
        await interrupt.settle()
    except asyncio.CancelledError:
        if interrupt.leaving:
            raise KeyboardInterrupt from None
        raise
    finally:
        loop.remove_signal_handler(signal.SIGINT)


async def follow(
    session: Session,
    run_id: str,
    view: LiveView,
    *,
    after: EventCursor | None = None,
    started_s: float | None = None,
    tools: LocalTools | None = None,
) -> StreamEnd | None:
    """Show a run's events until it ends, then its cost.

    A message that joined another run's turn is answered there, so the rest of that run is shown too.

    Args:
        session: A session of the run's tenant.
        view: Shows the run. With ``--json`` every event is a line instead.
        after: The last event that was shown before.
        tools: Executes the calls that the run waits for.
        started_s: When the user began to wait, by `time.monotonic`; None for a run that existed before.

    Returns:
        The end of the run, or None if it ended before `after`.
    """
    async with missing_worker_noted(session, run_id, view.note):
        end = await _show_all(session, run_id, view, after=after, tools=tools)
    if end is not None and end.merged_into:
        run_id, joined = end.merged_into, run_id
        end = await _show_all(session, run_id, view, joined=joined) or end
    if not session.out.json:
        view.finish()
        # A client that attached later did not wait from the start, so the run's own times count.
        if started_s is None:
            seconds = took_s(await session.client.runs.get(run_id))
        else:
            seconds = time.monotonic() - started_s
        line = cost_line(view.usage, seconds=seconds, run_id=run_id)
        session.out.note(line if end is None or end.status == "succeeded" else f"{end.status} · {line}")
    return end


async def _show_all(
    session: Session,
    run_id: str,
    view: LiveView,
    *,
    after: EventCursor | None = None,
    joined: str | None = None,
    tools: LocalTools | None = None,
) -> StreamEnd | None:
    """Show a run's events; with `joined`, those from where the run `joined` joined its turn."""
    end: StreamEnd | None = None
    async with aclosing(session.client.runs.events(run_id, after=after)) as feed:
        async for cursor, event in feed:
            if isinstance(event, StreamEnd) and event.final:
                end = event
            if isinstance(event, Steered) and joined in event.run_ids:
                joined = None
            if joined is not None and end is None:
                continue
            if tools is not None and isinstance(event, Waiting):
                tools.take(run_id, event)
            if session.out.json:
                session.out.line({"id": str(cursor), **event.model_dump(mode="json")})
            else:
                view.show(event)
    return end


def took_s(run: RunView) -> float | None:
    """Return the seconds from a run's start to its end; None if one of them is unknown."""
    if run.started_at is None or run.finished_at is None:
        return None
    return (run.finished_at - run.started_at).total_seconds()


def outcome_code(status: str, *, interrupted: bool) -> int:
    """Return the exit code for a run that ended in `status`."""
    if status in ("succeeded", "merged"):
        return 0
    return EXIT_INTERRUPTED if interrupted else EXIT_FAILED


def why_it_waits(run: RunView) -> str:
    """Return the reason why an accepted run does not run yet, as text."""
    if run.status == "scheduled":
        return f"starts at {stamp(run.start_at)}"
    if run.waiting_for:
        # Pauses and missing servers come as sentences, other reasons as nouns.
        sentence = " is paused" in run.waiting_for or run.waiting_for.startswith((NO_WORKER_ALIVE, REDIS_UNAVAILABLE))
        return run.waiting_for if sentence else f"waits for {run.waiting_for}"
    return f"queued behind {count_before(run.position)}" if run.position else "queued"
