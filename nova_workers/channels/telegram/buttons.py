"""Buttons below messages, and what pressing one means. A button's data has at most 64 bytes."""

from typing import NamedTuple

from aiogram.types import InlineKeyboardButton, InlineKeyboardMarkup

from nova_workers.channels.port import Reply

_MAX_DATA_BYTES = 64
_MAX_LABEL_CHARS = 60
_MAX_BUTTONS = 60
_MAX_CHOICE_DIGITS = 2
"""A question has at most 20 options. Clients can send what no button has."""


class Press(NamedTuple):
    """A pressed button.

    Attributes:
        agent_id: The chosen agent; else the question of
        run_id: this run, under
        wait_id: this id, with
        choice: this option; None: the answer is to be written.
    """

    agent_id: str | None = None
    run_id: str = ""
    wait_id: str = ""
    choice: int | None = None


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
        case _ if reply.command == "agent":
            labels = [(option, f"g:{option}") for option in reply.options]
        case _:
            pass
    fitting = [(label, data) for label, data in labels if len(data.encode()) <= _MAX_DATA_BYTES][:_MAX_BUTTONS]
    rows = [[InlineKeyboardButton(text=_short(label), callback_data=data)] for label, data in fitting]
    return InlineKeyboardMarkup(inline_keyboard=rows) if rows else None


def read_press(data: str | None) -> Press | None:
    """Return the meaning of a button; None if it is none of ours."""
    match (data or "").split(":"):
        case ["g", agent_id] if agent_id:
            return Press(agent_id=agent_id)
        case ["q", run, wait, ""] if run and wait:
            return Press(None, f"run_{run}", f"wait_{wait}")
        case ["q", run, wait, choice] if run and wait and choice.isdecimal() and len(choice) <= _MAX_CHOICE_DIGITS:
            return Press(None, f"run_{run}", f"wait_{wait}", int(choice))
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


def _data(reply: Reply, choice: str) -> str:
    run, wait = (reply.run_id or "").removeprefix("run_"), (reply.wait_id or "").removeprefix("wait_")
    return f"q:{run}:{wait}:{choice}"


def _short(label: str) -> str:
    return label if len(label) <= _MAX_LABEL_CHARS else f"{label[: _MAX_LABEL_CHARS - 1]}…"
