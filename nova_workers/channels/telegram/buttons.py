"""Buttons below messages, and what pressing one means. A button's data has at most 64 bytes."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from aiogram.types import InlineKeyboardButton, InlineKeyboardMarkup

from nova_workers.base.vocabulary import Rating
from nova_workers.channels.port import Command, Reply

_MAX_DATA_BYTES = 64
_MAX_LABEL_CHARS = 60
_MAX_BUTTONS = 60
_LETTERS: Final[Mapping[Command | None, str]] = {"agent": "g", "model": "m"}
"""Begins the data of a button that gives a command."""
_THUMBS: Final[Mapping[Rating, str]] = {"up": "👍", "down": "👎"}
_MAX_CHOICE_DIGITS = 2
"""A question has at most 20 options. Clients can send what no button has."""


class Press(NamedTuple):
    """A pressed button.

    Attributes:
        command: The command that it gives
        argument: this argument; else the question of
        run_id: this run, under
        wait_id: this id, with
        choice: this option; None: the answer is to be written.
        rating: What it says of the answer of the run.
    """

    command: Command | None = None
    argument: str = ""
    run_id: str = ""
    wait_id: str = ""
    choice: int | None = None
    rating: Rating | None = None


def keyboard(reply: Reply) -> InlineKeyboardMarkup | None:
    """Return the buttons of a reply; None if it has none."""
    labels: list[tuple[str, str]] = []
    match reply.type:
        case "approval":
            labels = [("✅ Approve", _data(reply, "0")), ("❌ Deny", _data(reply, "1"))]
        case "question":
            labels = [(option, _data(reply, str(at))) for at, option in enumerate(reply.options)]
            if not reply.only_options:
                labels.append(("✏️ Write an answer", _data(reply, "")))
        case _ if reply.command in _LETTERS:
            offered = zip(reply.labels or reply.options, reply.options, strict=True)
            labels = [(label, f"{_LETTERS[reply.command]}:{option}") for label, option in offered]
        case _:
            pass
    fitting = [(label, data) for label, data in labels if len(data.encode()) <= _MAX_DATA_BYTES][:_MAX_BUTTONS]
    rows = [[InlineKeyboardButton(text=_short(label), callback_data=data)] for label, data in fitting]
    return InlineKeyboardMarkup(inline_keyboard=rows) if rows else None


def thumbs(run_id: str, chosen: Rating | None = None) -> InlineKeyboardMarkup:
    """Return the buttons that rate the answer of a run, in one line; the chosen one is marked."""
    run = run_id.removeprefix("run_")
    row = [
        InlineKeyboardButton(text=f"{thumb} ✓" if rating == chosen else thumb, callback_data=f"f:{run}:{rating}")
        for rating, thumb in _THUMBS.items()
    ]
    return InlineKeyboardMarkup(inline_keyboard=[row])


def read_press(data: str | None) -> Press | None:
    """Return the meaning of a button; None if it is none of ours."""
    match (data or "").split(":"):
        case ["g", *argument] if any(argument):
            return Press("agent", ":".join(argument))
        case ["m", *argument] if any(argument):
            return Press("model", ":".join(argument))
        case ["f", run, "up" | "down" as rating] if run:
            return Press(run_id=f"run_{run}", rating=rating)
        case ["q", run, wait, ""] if run and wait:
            return Press(run_id=f"run_{run}", wait_id=f"wait_{wait}")
        case ["q", run, wait, choice] if run and wait and choice.isdecimal() and len(choice) <= _MAX_CHOICE_DIGITS:
            return Press(run_id=f"run_{run}", wait_id=f"wait_{wait}", choice=int(choice))
        case _:
            return None


def reply_target(markup: InlineKeyboardMarkup | None) -> Press | None:
    """Return the question of a message from its buttons, for an answer that is written as a reply to it."""
    if markup is not None:
        for row in markup.inline_keyboard:
            for button in row:
                press = read_press(button.callback_data)
                if press is not None and press.wait_id:
                    return press
    return None


def label_of(markup: InlineKeyboardMarkup | None, data: str | None) -> str:
    """Return the label of the button with this data; empty if there is none."""
    rows = [] if markup is None else markup.inline_keyboard
    return next((button.text for row in rows for button in row if button.callback_data == data), "")


def _data(reply: Reply, choice: str) -> str:
    run, wait = (reply.run_id or "").removeprefix("run_"), (reply.wait_id or "").removeprefix("wait_")
    return f"q:{run}:{wait}:{choice}"


def _short(label: str) -> str:
    return label if len(label) <= _MAX_LABEL_CHARS else f"{label[: _MAX_LABEL_CHARS - 1]}…"
