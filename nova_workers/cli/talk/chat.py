"""`nova chat`: a conversation on one thread.

Between turns `chat_input` edits a message. While a turn runs, Ctrl-C cancels it, and a line that is typed
and ended with Enter joins it at its next step.
"""

import asyncio
import sys
import time
from typing import Annotated

import typer

from nova_workers.base.errors import InvalidInput, NovaError
from nova_workers.cli.command import Session, build, given, remote
from nova_workers.cli.talk.answers import read_answer
from nova_workers.cli.talk.chat_input import COMMANDS, message_of, messages, typed_lines
from nova_workers.cli.talk.follow import follow, on_interrupt, why_it_waits
from nova_workers.cli.talk.live import LiveView
from nova_workers.cli.terminal.output import short
from nova_workers.contracts.events import Waiting
from nova_workers.contracts.http.wire import StatelessRunCreate

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_HELP = "\n".join(f"{name:10}{what}" for name, what in COMMANDS.items())
_KEYS = """Alt-Enter begins another line, and a paste may have many; Enter sends.
Ctrl-C cancels the turn that runs. A line typed meanwhile joins it, or answers what it asks."""


@remote(app, "chat")
async def chat(
    session: Session,
    thread: Annotated[str | None, typer.Option(help="Go on with this thread. Default: a new one.")] = None,
    agent: Annotated[str, typer.Option(help="The agent of a new thread.")] = "nova",
    model: Annotated[str | None, typer.Option(help="A model or an alias, for these turns only.")] = None,
    reasoning: Annotated[bool, typer.Option("--reasoning", help="Show extended thinking.")] = False,
) -> None:
    """Talk with an agent on one thread.

    Ctrl-C cancels the turn that runs, Ctrl-D leaves. Lines on a stdin that is no terminal are messages, one a turn.
    """
    talk = _Talk(session, thread=thread, agent=agent, model=model, reasoning=reasoning)
    await talk.open()
    interactive = session.out.tty and sys.stdin.isatty()
    source = messages(interactive=interactive, home=session.home)
    while (text := await source.next()) is not None:
        if not text.strip():
            continue
        message = message_of(text)
        if message is not None:
            await talk.say(message)
        elif not talk.command(text.strip()):
            break
    if not session.out.json and talk.thread:
        session.out.note(f"continue with `nova chat --thread {talk.thread}`")


class _Talk:
    """A conversation: its thread, once created, and its turns."""

    def __init__(self, session: Session, *, thread: str | None, agent: str, model: str | None, reasoning: bool) -> None:
        self._session = session
        self._agent = agent
        self._model = model
        self._reasoning = reasoning
        self._steering: list[asyncio.Task[str | None]] = []
        self._run_id = ""
        self._orchestrated = False
        """Whether the thread is that of an agent of an orchestration."""
        self.thread = thread

    async def open(self) -> None:
        """Fail before the first message if the fleet, key, thread or agent does not exist."""
        if self.thread:
            thread = await self._session.client.threads.get(self.thread)
            self._agent, self._orchestrated = thread.agent_id, thread.orchestration_id is not None
        agent = await self._session.client.agents.get(self._agent)
        if not self._session.out.json:
            self._session.out.note(f"{agent.spec.name} · Ctrl-C cancels a turn, Ctrl-D leaves, /help says more")

    def command(self, line: str) -> bool:
        """Run a command that begins with a slash; return whether to continue."""
        out = self._session.out
        match line:
            case "/quit" | "/exit":
                return False
            case "/new":
                self.thread, self._orchestrated = None, False
                out.note("the next message begins a new thread")
            case "/thread":
                out.note(self.thread or "none yet")
            case "/help":
                out.note(f"{_HELP}\n{_KEYS}")
            case _:
                out.note(f"{line.split(maxsplit=1)[0]!r} is not a command; /help lists them", "red")
        return True

    async def say(self, text: str) -> None:
        """Run one turn. An error is printed and the conversation continues; in a pipe it ends the command."""
        try:
            await self._turn(text)
        except NovaError as error:
            if not sys.stdin.isatty():
                raise
            self._session.out.note(f"✗ {error.message}", "red")
        except KeyboardInterrupt:
            self._session.out.note("left the turn; it is being canceled", "yellow")

    async def _turn(self, text: str) -> None:
        started_s = time.monotonic()
        answers_here = sys.stdin.isatty() and not self._session.out.json
        view = LiveView(
            self._session.out, reasoning=self._reasoning, answers_here=answers_here, lasting=self._orchestrated
        )
        async with on_interrupt(self._session, view) as interrupt:
            run = await self._session.client.runs.create(self._message(text, "enqueue"))
            self.thread = run.thread_id
            interrupt.arm(run.id)
            self._run_id = run.id
            view.doing(why_it_waits(run))
            with typed_lines(lambda line: self._steer(line, view)):
                await follow(self._session, run.id, view, started_s=started_s)
            # A line that came too late to join the turn is a run of its own, shown next.
            while self._steering:
                late = await self._steering.pop(0)
                if late is not None and (await self._session.client.runs.get(late)).status != "merged":
                    interrupt.arm(late)
                    await follow(self._session, late, LiveView(self._session.out, reasoning=self._reasoning))

    def _steer(self, typed: str, view: LiveView) -> None:
        text = message_of(typed)
        if text is None:
            view.note(f"✗ {short(typed)!r} was not sent: commands wait for the turn; /say … sends it", "red")
            return

        async def send() -> str | None:
            try:
                if view.asked is not None:
                    await self._answer(view.asked, text, view)
                    return None
                run = await self._session.client.runs.create(self._message(text, "steer"))
            except NovaError as error:
                view.note(f"✗ {text!r} was not sent: {error.message}", "red")
                return None
            return run.id

        self._steering.append(asyncio.get_running_loop().create_task(send()))

    async def _answer(self, asked: Waiting, text: str, view: LiveView) -> None:
        """Answer the run's question with a line; ask again if it is no answer."""
        try:
            answer = read_answer(
                text,
                options=asked.options,
                only_options=asked.only_options,
                approval=asked.kind == "approval",
                lasting=self._orchestrated,
            )
        except InvalidInput as error:
            view.note(f"✗ {error.message}", "red")
            view.ask(asked)
            return
        await self._session.client.runs.answer(self._run_id, answer)

    def _message(self, text: str, on_busy: str) -> StatelessRunCreate:
        agent = None if self.thread else self._agent
        message = given(message=text, thread_id=self.thread, agent_id=agent, on_busy=on_busy, model=self._model)
        return build(StatelessRunCreate, message)
