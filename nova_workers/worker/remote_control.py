"""Celery's remote control, reduced to what shows a worker and changes nothing.

Flower asks for inspections. Other commands would let any client of the broker stop a worker, resize its pool or revoke
doorbells, past the fleet's own drain and cancel. They are answered with a refusal that says what to do instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from celery.worker import pidbox
from celery.worker.consumer.control import Control
from kombu.message import Message
from pydantic import ValidationError

from nova_workers.base.observability.foreign import ForeignMessages
from nova_workers.broker.messages import CommandForm, CommandHeaders, first_error

PERMITTED: Final = frozenset(
    {
        *("active", "active_queues", "clock", "conf", "ping", "query_task", "registered", "report", "reserved"),
        *("revoked", "scheduled", "stats"),
        # Flower repeats it, for workers that do not send events from their start.
        *("enable_events", "heartbeat"),
    }
)
"""The commands that are executed."""

_CANCEL: Final = "cancel its run: `nova runs cancel RUN`"
_SIZE: Final = "set NOVA_WORKER__CONCURRENCY, or start more workers"
_QUEUES: Final = "start a worker with `nova worker --queues`; `nova fleet pause` holds runs"
_LIMITS: Final = "runs have limits of their agent and tenant: `nova agents edit`, `nova tenant set`"
_INSTEAD: Final[Mapping[str, str]] = {
    "shutdown": "`nova fleet drain WORKER`, or send SIGTERM to its process: it requeues its runs",
    **dict.fromkeys(("revoke", "revoke_by_stamped_headers", "terminate"), _CANCEL),
    **dict.fromkeys(("autoscale", "pool_grow", "pool_restart", "pool_shrink"), _SIZE),
    **dict.fromkeys(("add_consumer", "cancel_consumer"), _QUEUES),
    **dict.fromkeys(("rate_limit", "time_limit"), _LIMITS),
    "disable_events": "Flower lives on them",
}
"""What an operator does instead of a command that is refused."""


class _Handlers(dict[str, Callable[..., Any]]):
    """The commands that are executed, by name; every other name has one that refuses it."""

    def __missing__(self, name: str) -> Callable[..., dict[str, str]]:
        instead = _INSTEAD.get(name)
        advice = "" if instead is None else f" Instead: {instead}."
        refusal = f"refused: workers take no {name[:100]!r} by remote control.{advice}"
        return lambda *_, **__: {"error": refusal}


def permitted_handlers(all_handlers: Mapping[str, Callable[..., Any]]) -> Mapping[str, Callable[..., Any]]:
    """Return the handlers of a worker's mailbox: those of the permitted commands, and a refusal of any other."""
    return _Handlers({name: handler for name, handler in all_handlers.items() if name in PERMITTED})


class _Mailbox(pidbox.Pidbox):
    """A mailbox that executes inspections, and refuses other commands."""

    def __init__(self, c: Any) -> None:
        super().__init__(c)
        node: Any = self.node
        node.handlers = permitted_handlers(node.handlers)

    def start(self, c: Any) -> None:
        """Subscribe. Called by Celery at each connection to the broker."""
        super().start(c)
        consumer: Any = self.consumer
        consumer.on_decode_error = _drop_undecodable

    def on_message(self, body: object, message: Message) -> None:
        """Execute a command, refuse it, or drop what is none."""
        foreign = _foreign(message)
        try:
            CommandHeaders.model_validate(message.headers)
            command = CommandForm.model_validate(body)
        except ValidationError as error:
            foreign.drop("remote_control", "unreadable", error=first_error(error))
            return
        if command.method not in PERMITTED:
            foreign.drop("remote_control", "refused_command", command=command.method[:100])
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
