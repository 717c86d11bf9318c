"""Follows an orchestration to its end, as a live drawing on a terminal or as lines; Ctrl-C detaches or kills."""

import asyncio
import signal
from collections.abc import Callable, Generator
from contextlib import aclosing, contextmanager

from rich.live import Live
from rich.text import Text

from nova_workers.cli.command import Session
from nova_workers.cli.orchestrations.changes import note_changes
from nova_workers.cli.orchestrations.tree_view import TreeView
from nova_workers.cli.terminal.output import money, printable
from nova_workers.errors import NovaError

__all__ = ["watch"]

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130
_DETACH_AFTER_S = 2.0
_LOOK_EVERY_S = 5.0


class _Interrupt:
    """Ctrl-C: the first detaches in a moment, a second one before that kills the orchestration."""

    def __init__(self, session: Session, orchestration_id: str, view: TreeView) -> None:
        self._session = session
        self._id = orchestration_id
        self._view = view
        self._leave = asyncio.current_task()
        self._task: asyncio.Task[None] | None = None
        self.pressed = 0

    def press(self) -> None:
        self.pressed += 1
        if self.pressed > 2 and self._leave is not None:
            self._leave.cancel()
            return
        if self._task is not None:
            self._task.cancel()
        self._task = asyncio.create_task(self._detach() if self.pressed == 1 else self._kill())

    async def _detach(self) -> None:
        self._say(f"detaching; Ctrl-C again within {_DETACH_AFTER_S:g} s kills the orchestration")
        await asyncio.sleep(_DETACH_AFTER_S)
        if self._leave is not None:
            self._leave.cancel()

    async def _kill(self) -> None:
        self._say("killing; Ctrl-C again leaves at once")
        try:
            await self._session.client.orchestrations.kill(self._id)
        except NovaError as error:
            self._say(f"the kill did not reach the orchestration: {error.message}")

    def _say(self, text: str) -> None:
        self._view.note = text
        if not self._session.out.tty:
            self._session.out.note(text)


async def watch(session: Session, orchestration_id: str) -> int:
    """Show an orchestration until it ends, then its summary; return the exit code. With ``--json`` events are lines."""
    view = TreeView()
    interrupt = _Interrupt(session, orchestration_id, view)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, interrupt.press)
    try:
        with _shown(session, view) as line:
            silence = asyncio.create_task(_note_silence(session, view))
            try:
                await _follow(session, orchestration_id, view, line)
            finally:
                silence.cancel()
                await asyncio.gather(silence, return_exceptions=True)
    except asyncio.CancelledError:
        if not interrupt.pressed:
            raise
        hint = f"nova orchestrations tree {orchestration_id} --follow"
        session.out.note(f"Detached; the orchestration goes on. Follow it with `{hint}`.")
        return EXIT_INTERRUPTED
    finally:
        loop.remove_signal_handler(signal.SIGINT)
    return await _show_end(session, orchestration_id, interrupted=interrupt.pressed > 1)


async def _follow(session: Session, orchestration_id: str, view: TreeView, line: Callable[[str], None]) -> None:
    async with aclosing(session.client.orchestrations.events(orchestration_id)) as feed:
        async for cursor, record in feed:
            text = view.take(record)
            if session.out.json:
                session.out.line({"id": str(cursor), **record.model_dump(mode="json", exclude_none=True)})
            elif text is not None and (not session.out.tty or text.startswith("?")):
                line(text)


@contextmanager
def _shown(session: Session, view: TreeView) -> Generator[Callable[[str], None]]:
    """Draw the view while the block runs, and yield the function that writes a line."""
    if not session.out.tty:
        yield session.out.note
        return
    console = session.out.console
    with Live(console=console, get_renderable=view.render, refresh_per_second=4) as live:
        yield lambda text: live.console.print(Text(printable(text), style="yellow"))


async def _note_silence(session: Session, view: TreeView) -> None:
    """Write that no events come, once per silence. A terminal shows it in the drawing."""
    said = False
    while not session.out.tty:
        await asyncio.sleep(_LOOK_EVERY_S)
        if view.silent_s and not said:
            session.out.note(f"no events for {view.silent_s:.0f} s")
        said = bool(view.silent_s)


async def _show_end(session: Session, orchestration_id: str, *, interrupted: bool) -> int:
    view = await session.client.orchestrations.get(orchestration_id)
    if not session.out.json:
        if view.summary:
            session.out.text(view.summary)
        if view.error is not None:
            session.out.note(f"✗ {view.error.code}: {view.error.message}", "red")
        await note_changes(session, orchestration_id)
        agents = sum(view.agents.values())
        tokens = view.usage.input_tokens + view.usage.output_tokens
        cost = money(view.usage.cost_usd)
        session.out.note(f"{view.state} · {agents} agents · {tokens:,} tokens · {cost} · {view.id}")
    if view.state == "COMPLETED":
        return 0
    return EXIT_INTERRUPTED if interrupted else EXIT_FAILED
