"""Celery's remote control, reduced to what shows a worker and changes nothing.

Flower asks for inspections. Other commands would let any client of the broker stop a worker, resize its pool or revoke
doorbells, past the fleet's own drain and cancel.
"""

from __future__ import annotations

from typing import Any, Final

from celery.worker import pidbox
from celery.worker.consumer.control import Control
from kombu.message import Message
from pydantic import ValidationError

from nova_workers.broker.messages import CommandForm, CommandHeaders, first_error
from nova_workers.observability.foreign import ForeignMessages

__all__ = ["RemoteControl"]

_COMMANDS: Final = frozenset(
    {
        *("active", "active_queues", "conf", "ping", "registered", "reserved", "revoked", "scheduled", "stats"),
        # Flower repeats it, for workers that do not send events from their start.
        "enable_events",
    }
)


class _Mailbox(pidbox.Pidbox):
    """A mailbox that executes inspections only."""

    def start(self, c: Any) -> None:
        """Subscribe. Called by Celery at each connection to the broker."""
        super().start(c)
        consumer: Any = self.consumer
        consumer.on_decode_error = _drop_undecodable

    def on_message(self, body: object, message: Message) -> None:
        """Execute a command, or drop it."""
        foreign = _foreign(message)
        try:
            CommandHeaders.model_validate(message.headers)
            command = CommandForm.model_validate(body)
        except ValidationError as error:
            foreign.drop("remote_control", "unreadable", error=first_error(error))
            return
        if command.method not in _COMMANDS:
            foreign.drop("remote_control", "refused_command", command=command.method[:100])
            return
        super().on_message(body, message)


def _drop_undecodable(message: Message, error: Exception) -> None:
    _foreign(message).drop("remote_control", "unreadable", error=repr(error)[:200])


def _foreign(message: Message) -> ForeignMessages:
    channel: Any = message.channel
    return channel.foreign_messages


class RemoteControl(Control):
    """The part of a consumer that receives commands."""

    def __init__(self, c: Any, **options: Any) -> None:
        super().__init__(c, **options)
        box = _Mailbox(c)
        step: Any = self
        step.box, step.start, step.stop, step.shutdown = box, box.start, box.stop, box.shutdown
