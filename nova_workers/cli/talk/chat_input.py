"""Input of `nova chat`: whole messages between turns, lines during a turn."""

import asyncio
import os
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

PROMPT = "> "

COMMANDS = {
    "/help": "list these",
    "/new": "begin a new thread",
    "/thread": "print this thread's id",
    "/say": "send the rest of the line as it is; so does a second slash, as in //path",
    "/quit": "leave, as Ctrl-D does",
}
"""The commands of a chat, and their help."""

_TOGETHER_S = 0.05
"""Lines within this time of each other were pasted, and are one message."""


class Messages(Protocol):
    """A source of messages of a conversation."""

    async def next(self) -> str | None:
        """Return the next one, or None when there are no more."""
        ...


def messages(*, interactive: bool, home: Path) -> Messages:
    """Return the terminal's editor, with a history under `home`; else a reader of stdin's lines."""
    return _Prompt(home) if interactive else _Piped()


def message_of(text: str) -> str | None:
    """Return the message in a text, or None for a command."""
    first, _, rest = text.partition(" ")
    if first in ("/say", "/steer") and rest.strip():
        return rest
    if text.startswith("//"):
        return text[1:]
    return None if text.startswith("/") else text


class _Piped:
    async def next(self) -> str | None:
        # Between turns nothing else runs on the loop; Ctrl-C ends the command.
        line = sys.stdin.readline()
        return line.rstrip("\n") if line else None


class _Prompt:
    """Enter sends; Alt-Enter or Ctrl-J begins a line, and a paste keeps its own. Ctrl-C discards the input."""

    def __init__(self, home: Path) -> None:
        self._session: PromptSession[str] = PromptSession(
            PROMPT,
            multiline=True,
            prompt_continuation="  ",
            history=_history(home / "chat_history"),
            completer=CommandCompleter(),
            complete_while_typing=True,
            key_bindings=_keys(),
            # Reserves no lines for completions.
            reserve_space_for_menu=0,
        )

    async def next(self) -> str | None:
        while True:
            try:
                return await self._session.prompt_async()
            except EOFError:
                return None
            except KeyboardInterrupt:
                sys.stderr.write("(Ctrl-D leaves)\n")


class CommandCompleter(Completer):
    """Completes commands in a message that begins with a slash."""

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield the commands that start with the message."""
        typed = document.text
        if not typed.startswith("/") or any(letter.isspace() for letter in typed):
            return
        for name, what in COMMANDS.items():
            if name.startswith(typed):
                yield Completion(name, start_position=-len(typed), display_meta=what)


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    @keys.add("c-j")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys


def _history(path: Path) -> History:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Typed text is private to its user.
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    except OSError:
        return InMemoryHistory()
    return FileHistory(path)


@contextmanager
def typed_lines(take: Callable[[str], None]) -> Generator[None]:
    """Pass each line typed inside the block to the callback; on a terminal only. A paste is one text."""
    if not sys.stdin.isatty():
        yield
        return
    loop = asyncio.get_running_loop()
    source = sys.stdin.fileno()
    held: list[str] = []
    timer: asyncio.TimerHandle | None = None

    def take_lines() -> None:
        text = "".join(held).strip("\n")
        held.clear()
        if text.strip():
            take(text)

    def on_readable() -> None:
        nonlocal timer
        data = os.read(source, 65536)
        if not data:
            # Ctrl-D on an empty line ends the input; the turn continues.
            loop.remove_reader(source)
            return
        held.append(data.decode("utf-8", "replace"))
        if timer is not None:
            timer.cancel()
        timer = loop.call_later(_TOGETHER_S, take_lines)

    loop.add_reader(source, on_readable)
    try:
        yield
    finally:
        loop.remove_reader(source)
        if timer is not None:
            timer.cancel()
        take_lines()
