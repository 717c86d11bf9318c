"""Asks the person at a terminal what the agents of an orchestration ask, one question after another."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from nova_workers.base.errors import InvalidInput, NovaError
from nova_workers.base.stopping import stop_tasks
from nova_workers.cli.command import Session
from nova_workers.cli.orchestrations.drawing import REDRAWS_A_SECOND, Drawing
from nova_workers.cli.talk.answers import choices, read_answer
from nova_workers.cli.terminal.output import printable, short
from nova_workers.contracts.events import StreamEnd, StreamStart, Waiting
from nova_workers.contracts.orchestration.events import AgentStateChanged, TreeRecord
from nova_workers.contracts.waits import ANSWERABLE, AskApproval, AskUser, WaitView

_MOST_INPUT_CHARS = 4_000


@dataclass(frozen=True, slots=True)
class _Question:
    """An open question of an agent, or a call of it that needs permission."""

    agent: str
    wait: WaitView

    @property
    def approval(self) -> bool:
        return isinstance(self.wait.request, AskApproval)

    @property
    def options(self) -> tuple[str, ...]:
        return self.wait.request.options if isinstance(self.wait.request, AskUser) else ()

    @property
    def only_options(self) -> bool:
        return isinstance(self.wait.request, AskUser) and self.wait.request.only_options

    @property
    def choices(self) -> str:
        return choices(self.options, only_options=self.only_options, approval=self.approval, lasting=True)

    def lines(self) -> list[str]:
        """Return the question as text: with its options, or with the input of the call."""
        request = self.wait.request
        if isinstance(request, AskApproval):
            given = [f"    {name}: {_value(value)}" for name, value in request.params.items()]
            why = [f"  {short(request.reason, 300)}"] if request.reason else []
            return [
                f"? {self.agent} asks for permission to call {request.tool_name}",
                *given,
                *why,
                "  always permits it to all agents of this orchestration from now on",
            ]
        question = request.question if isinstance(request, AskUser) else ""
        options = [f"    {number}. {option}" for number, option in enumerate(self.options, 1)]
        return [f"? {self.agent} asks: {question}", *options]


class Questions:
    """The open questions of an orchestration. The tree in the ledger has them; events say when to look.

    Args:
        session: The session of the command.
        drawing: The drawing, which each question pauses.
        interrupt: Handles Ctrl-C, which an open prompt reads as a key.
    """

    def __init__(
        self, session: Session, orchestration_id: str, drawing: Drawing, interrupt: Callable[[], None]
    ) -> None:
        self._session = session
        self._id = orchestration_id
        self._drawing = drawing
        self._interrupt = interrupt
        self._open: list[_Question] = []
        self._left: set[str] = set()
        """Waits that the person does not answer here."""
        self._stale = asyncio.Event()
        # Questions from before this command have no event that follows.
        self._stale.set()

    def on_record(self, record: TreeRecord) -> None:
        """Look again if an event may have opened or ended a question."""
        event = record.event
        opens = isinstance(event, Waiting) and event.kind in ANSWERABLE
        if opens or (self._open and isinstance(event, StreamStart | StreamEnd | AgentStateChanged)):
            self._stale.set()

    async def ask(self) -> None:
        """Ask every question, until canceled."""
        while True:
            await self._stale.wait()
            await self._look()
            if self._open:
                with self._drawing.paused():
                    while self._open:
                        await self._ask(self._open[0])

    async def _look(self) -> None:
        """Read which questions are open."""
        self._stale.clear()
        try:
            tree = await self._session.client.orchestrations.tree(self._id)
        except NovaError as error:
            self._drawing.write(f"✗ The open questions cannot be read: {error.message} `nova waits` lists them.", "red")
            return
        self._open = [
            _Question(f"{printable(agent.name)} ({agent.role.lower()})", wait)
            for agent in tree.agents
            for wait in agent.waits
            if wait.id not in self._left
        ]

    async def _ask(self, question: _Question) -> None:
        """Ask one question until it is answered, here or elsewhere, or left open."""
        for line in question.lines():
            self._drawing.write(line)
        while question in self._open:
            try:
                typed = await self._typed(question)
            except EOFError:
                self._left.add(question.wait.id)
                self._open.remove(question)
                self._drawing.write(f"  left open; `nova runs answer {question.wait.run_id}` answers it", "dim")
                return
            if typed is None:
                self._drawing.write("  it is not open any more", "dim")
                return
            await self._send(question, typed)

    async def _send(self, question: _Question, typed: str) -> None:
        """Send an answer. A refusal is written, and leaves the question open unless it was answered elsewhere."""
        try:
            answer = read_answer(
                typed,
                options=question.options,
                only_options=question.only_options,
                approval=question.approval,
                lasting=True,
            )
            answer = answer.model_copy(update={"wait_id": question.wait.id})
            await self._session.client.runs.answer(question.wait.run_id, answer)
        except InvalidInput as error:
            self._drawing.write(f"✗ {error.message}", "red")
        except NovaError as error:
            self._drawing.write(f"✗ {error.message}", "red")
            await self._look()
        else:
            self._open.remove(question)
            given = answer.text or ("always" if answer.remember else "yes" if answer.approve else "no")
            self._drawing.write(f"  → {given}", "green")

    async def _typed(self, question: _Question) -> str | None:
        """Return the line that is typed, or None if the question is answered elsewhere meanwhile.

        Raises:
            EOFError: Ctrl-D was pressed.
        """
        prompt: PromptSession[str] = PromptSession(
            lambda: self._drawing.prompt(self._prompt_of(question)),
            key_bindings=self._keys(),
            refresh_interval=1 / REDRAWS_A_SECOND,
            reserve_space_for_menu=0,
            erase_when_done=True,
        )
        reading = asyncio.create_task(prompt.prompt_async(handle_sigint=False))
        looking = asyncio.create_task(self._until_gone(question))
        try:
            await asyncio.wait((reading, looking), return_when=asyncio.FIRST_COMPLETED)
            return reading.result() if reading.done() else None
        finally:
            await stop_tasks((reading, looking))

    async def _until_gone(self, question: _Question) -> None:
        while question in self._open:
            await self._stale.wait()
            await self._look()

    def _prompt_of(self, question: _Question) -> str:
        number = f" · 1 of {len(self._open)}" if len(self._open) > 1 else ""
        numbers = "the number of an option" if question.only_options else "the number of an option, or another answer"
        what = question.choices if len(question.choices) <= 40 else numbers
        return f"{question.agent}{number} · {what or 'your answer'}; Ctrl-D answers later"

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("c-c")
        def _(event: KeyPressEvent) -> None:
            self._interrupt()

        return keys


def _value(value: Any) -> str:
    """Return a value of a call's input. What is permitted is shown whole, unless it is very long."""
    text = printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    if len(text) > _MOST_INPUT_CHARS:
        text = f"{text[:_MOST_INPUT_CHARS]}… [{len(text) - _MOST_INPUT_CHARS} more characters]"
    return text.replace("\n", "\n      ")
