"""A Celery consumer that executes only our doorbells, sends events in batches, and fetches as soon as a slot is free.

What is in a queue and no doorbell is dropped: Celery reads headers without checks, and what it raises ends the worker.

Celery flushes task events at every tick of its hub, one publish for one or two events: a fifth of a worker's CPU under
load (docs/decisions/0005-celery-settings.md).

Without prefetch a worker with no free slot does not listen to the broker until its hub ticks next, up to a second after
a slot became free. Here the end of a task makes the hub tick.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import structlog
from celery.utils.dispatch import Signal
from celery.worker import state
from celery.worker.consumer import Consumer
from kombu.exceptions import DecodeError
from kombu.message import Message
from pydantic import ValidationError
from redis.exceptions import RedisError

from nova_workers.base.observability.foreign import ForeignMessages, Reason
from nova_workers.broker.celery_app import RECONNECT
from nova_workers.broker.messages import DoorbellBody, DoorbellHeaders

_log = structlog.get_logger(__name__)

CONSUMER = f"{__name__}:BatchingConsumer"
"""The class's name for Celery's `worker_consumer`."""

broker_connected: Final = Signal(name="broker_connected")
"""Sent after each connection to the broker."""
broker_awaited: Final = Signal(name="broker_awaited")
"""Sent before each attempt to connect, and every second until it succeeds. Meanwhile the hub sends no heartbeats."""

_GATHER_S = 0.5
"""How long task events are collected. Flower shows seconds."""
_NO_LIMIT = sys.maxsize
"""The limit of events that are collected. At a limit their sender publishes them at once: the end of a task is on the
event loop, which nothing may block. The timer bounds them, to some 300 kB at 300 tasks a second."""
_CELERYS_OWN = "celery."
"""Tasks that Celery adds to every app, for features that we do not use."""
_REMOTE_CONTROL = "nova_workers.worker.remote_control:RemoteControl"


def _without(steps: Iterable[str], *left_out: str) -> list[str]:
    return [step for step in steps if not step.endswith(left_out)]


class BatchingConsumer(Consumer):
    """A consumer that collects task events for a moment before it sends them."""

    _flush_due = False

    class Blueprint(Consumer.Blueprint):
        """Celery's parts of a consumer, with our remote control, and without messages between workers."""

        default_steps = (
            *_without(Consumer.Blueprint.default_steps, "control:Control", "gossip:Gossip"),
            _REMOTE_CONTROL,
        )

    def __init__(self, *args: Any, worker_options: Mapping[str, Any], **options: Any) -> None:
        # Tasks requires Mingle, so it is in the list. At each connection it would wait a second for the other workers.
        super().__init__(*args, worker_options={**worker_options, "without_mingle": True}, **options)

    def create_task_handler(self, *args: Any, **options: Any) -> Callable[..., None]:
        """Return the function that takes a message of a queue."""
        handle = super().create_task_handler(*args, **options)

        def on_message(message: Message) -> None:
            try:
                reason = self._why_foreign(message)
                if reason is not None:
                    _foreign(message).drop("queue", reason, **_describe(message))
                    return
                handle(message)
            except (RedisError, OSError):
                raise
            except Exception:
                _log.exception("message.failed", **_describe(message))
                _foreign(message).drop("queue", "failed", **_describe(message))

        return on_message

    def _why_foreign(self, message: Message) -> Reason | None:
        app: Any = self.app
        try:
            headers = DoorbellHeaders.model_validate(message.headers)
            if headers.task not in app.tasks or headers.task.startswith(_CELERYS_OWN):
                return "unknown_task"
            if message.delivery_info["routing_key"] not in app.amqp.queues.consume_from:
                return "unreadable"
            _, arguments, _ = DoorbellBody.validate_python(message.decode())
            app.tasks[headers.task].__header__(**arguments)
        except (ValidationError, DecodeError):
            return "unreadable"
        except TypeError:
            return "wrong_arguments"
        return None

    def ensure_connected(self, conn: Any) -> Any:
        """Connect to the broker, however long it is away."""
        # A broker may accept connections and refuse writes: then each attempt fails after this, before heartbeats.
        _await_broker()
        conn.ensure_connection(_log_attempt, callback=_await_broker, **RECONNECT)
        self.first_connection_attempt = False
        return conn

    def register_with_event_loop(self, hub: Any) -> None:
        """Join the hub. Called by Celery at each connection to the broker."""
        super().register_with_event_loop(hub)
        # A failed attempt to connect cancels the timers that were set during it, also that of a flush.
        self._flush_due = False
        self.on_send_event_buffered()
        broker_connected.send(sender=self)
        consumer: Any = self.task_consumer  # pyright: ignore[reportAttributeAccessIssue] - a bootstep sets it
        consumer.channel.room = self._free_slots
        pool: Any = self.pool
        pool.on_end = self._wake

    def _free_slots(self) -> int:
        pool: Any = self.pool
        return pool.num_processes - len(state.reserved_requests) if pool.takes_work() else 0

    def _wake(self) -> None:
        # The one that ended is not among them: with it, all slots were busy, and the hub did not listen.
        if self.hub and self._free_slots() <= 1:
            # Called on the pool's loop; `call_soon` of the hub is thread-safe.
            self.hub.call_soon(_tick)

    def on_send_event_buffered(self) -> None:
        """Schedule a flush of the buffered events. Called by Celery after each event."""
        if self.hub and not self._flush_due:
            self._flush_due = True
            dispatcher: Any = self.event_dispatcher  # pyright: ignore[reportAttributeAccessIssue] - a bootstep sets it
            dispatcher.buffer_limit = _NO_LIMIT
            self.hub.call_later(_GATHER_S, self._flush_gathered)

    def _flush_gathered(self) -> None:
        self._flush_due = False
        self._flush_events()


def _log_attempt(error: Exception, pause_s: float) -> None:
    _log.warning(
        "broker.unavailable", outage="redis", error=f"{type(error).__name__}: {error}", pause_s=round(pause_s, 1)
    )


def _await_broker() -> None:
    broker_awaited.send(sender=None)
    # A drain ends the wait.
    state.maybe_shutdown()


def _foreign(message: Message) -> ForeignMessages:
    channel: Any = message.channel
    return channel.foreign_messages


def _describe(message: Message) -> dict[str, object]:
    """Return the fields that identify a message in the log, in bounded size."""
    return {
        "queue": message.delivery_info["routing_key"],
        "task": repr(message.headers.get("task"))[:100],
        "task_id": repr(message.headers.get("id"))[:100],
        "origin": repr(message.headers.get("origin"))[:100],
        "size": len(message.body or b""),
    }


def _tick() -> None:
    """Do nothing: the hub checks its slots at every tick."""
