"""Follows an orchestration to its end, as a live drawing on a terminal or as lines; Ctrl-C detaches or kills."""

import asyncio
import signal
import sys
from contextlib import aclosing
from dataclasses import dataclass

from nova_workers.base.errors import NovaError
from nova_workers.base.stopping import stop_tasks
from nova_workers.cli.command import Session
from nova_workers.cli.orchestrations.asking import Questions
from nova_workers.cli.orchestrations.changes import note_changes
from nova_workers.cli.orchestrations.drawing import Drawing
from nova_workers.cli.orchestrations.tree_view import TreeView
from nova_workers.cli.terminal.output import money

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a follower waits for what.

    Attributes:
        detach_after_s: For a second Ctrl-C after the first.
        silent_after_s: Without an event, until the reader gets to know of it.
        look_every_s: Between two looks for such a silence.
    """

    detach_after_s: float = 2.0
    silent_after_s: float = 30.0
    look_every_s: float = 5.0


_PACE = Pace()


class _Interrupt:
    """Ctrl-C: the first detaches in a moment, a second one before that kills the orchestration."""

    def __init__(self, session: Session, orchestration_id: str, view: TreeView, detach_after_s: float) -> None:
        self._detach_after_s = detach_after_s
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
        self._say(f"detaching; Ctrl-C again within {self._detach_after_s:g} s kills the orchestration")
        await asyncio.sleep(self._detach_after_s)
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


async def watch(session: Session, orchestration_id: str, *, pace: Pace = _PACE) -> int:
    """Show an orchestration until it ends, then its summary; return the exit code. With ``--json`` events are lines.

    On a terminal, questions and approvals of agents are asked in place.
    """
    view = TreeView(silent_after_s=pace.silent_after_s)
    interrupt = _Interrupt(session, orchestration_id, view, pace.detach_after_s)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, interrupt.press)
    try:
        if session.out.tty:
            await _draw(session, orchestration_id, view, interrupt)
        else:
            await _write_lines(session, orchestration_id, view, pace)
    except asyncio.CancelledError:
        if not interrupt.pressed:
            raise
        hint = f"nova orchestrations tree {orchestration_id} --follow"
        session.out.note(f"Detached; the orchestration goes on. Follow it with `{hint}`.")
        return EXIT_INTERRUPTED
    finally:
        loop.remove_signal_handler(signal.SIGINT)
    return await _show_end(session, orchestration_id, interrupted=interrupt.pressed > 1)


async def _draw(session: Session, orchestration_id: str, view: TreeView, interrupt: _Interrupt) -> None:
    """Draw the tree until it ends. If stdin is a terminal too, ask there what agents ask."""
    drawing = Drawing(session.out.console, view)
    questions = Questions(session, orchestration_id, drawing, interrupt.press) if sys.stdin.isatty() else None
    with drawing.shown():
        asking = [] if questions is None else [asyncio.create_task(questions.ask())]
        try:
            async with aclosing(session.client.orchestrations.events(orchestration_id)) as feed:
                async for _, record in feed:
                    text = view.take(record)
                    if questions is not None:
                        questions.on_record(record)
                    elif text is not None and text.startswith("?"):
                        drawing.write(text)
        finally:
            await stop_tasks(asking)


async def _write_lines(session: Session, orchestration_id: str, view: TreeView, pace: Pace) -> None:
    """Write a line for each event until the orchestration ends, and one for each silence."""
    silence = asyncio.create_task(_note_silence(session, view, pace.look_every_s))
    try:
        async with aclosing(session.client.orchestrations.events(orchestration_id)) as feed:
            async for cursor, record in feed:
                text = view.take(record)
                if session.out.json:
                    session.out.line({"id": str(cursor), **record.model_dump(mode="json", exclude_none=True)})
                elif text is not None:
                    session.out.note(text)
    finally:
        await stop_tasks([silence])


async def _note_silence(session: Session, view: TreeView, look_every_s: float) -> None:
    """Write that no events come, once per silence."""
    said = False
    while True:
        await asyncio.sleep(look_every_s)
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
