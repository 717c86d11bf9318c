"""The Celery app for doorbells. docs/decisions/0005-celery-settings.md has the evidence for each setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import orjson
from celery import Celery
from kombu.entity import Queue
from kombu.serialization import registry

from nova_workers.base.keys import BROKER_KEY_PREFIX
from nova_workers.base.observability.foreign import ForeignMessages
from nova_workers.base.sockets import TCP_OPTIONS
from nova_workers.base.vocabulary import QUEUES
from nova_workers.broker.transport import use_kept_clients

__all__ = [
    "QUEUES",
    "RECONNECT",
    "build_celery",
    "kombu_url",
]


RECONNECT: Final[dict[str, float | None]] = {
    "max_retries": None,
    "interval_start": 0.2,
    "interval_step": 0.4,
    "interval_max": 2.0,
}
"""Pauses between attempts to connect to the broker, for kombu. Celery's own grow to 30 s, in which a broker that is
back has neither workers nor ticks."""

_SERIALIZER: Final = "orjson"


def build_celery(
    redis_url: str,
    *,
    fail_fast: bool,
    name: str | None = None,
    consumed: Sequence[str] = (),
    foreign: ForeignMessages | None = None,
) -> Celery:
    """Return the Celery app of a process.

    Args:
        redis_url: ``redis://``, ``rediss://`` or ``unix://``.
        fail_fast: True for a process that only sends (beat): a send to a dead broker fails in seconds. A worker waits
            for the broker instead.
        name: Of the connections, in Redis's `CLIENT LIST`.
        consumed: The queues of a worker, among them those of its pool.
        foreign: Counts the messages that this process drops; None if it only logs them.
    """
    use_kept_clients()
    # JSON too, and read as such. kombu's own encoder is written in Python: a twentieth of a worker's CPU under load.
    registry.register(_SERIALIZER, _encode, None, content_type="application/json", content_encoding="utf-8")
    app = Celery("nova_workers", set_as_current=False)
    app.conf.update(
        broker_url=kombu_url(redis_url),
        result_backend=None,
        # Late acknowledgement on Redis starts duplicates within 90 ms of a connection reset, and a crash of Redis ended
        # the worker 6 of 6 times. A lost doorbell is rung again; a duplicate finds nothing to claim.
        task_acks_late=False,
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        # Otherwise as many messages as there are slots wait behind hour-long runs.
        worker_prefetch_multiplier=1,
        worker_disable_prefetch=True,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_send_task_events=True,
        task_send_sent_event=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        # An error that the broker answers, such as a permission that was withdrawn, ends no worker.
        broker_channel_error_retry=True,
        task_publish_retry_policy={"max_retries": 1, "interval_start": 0, "interval_step": 0.05, "interval_max": 0.05},
        broker_transport_options=_transport_options(fail_fast)
        | {"client_name": name, "foreign_messages": foreign or ForeignMessages(None)},
        # No acknowledgement: an early one covers only the moment between receipt and acknowledgement, for two more
        # round trips per doorbell; the reconciler covers every loss.
        task_queues=[Queue(name, no_ack=True) for name in dict.fromkeys((*QUEUES, *consumed))],
        task_default_queue="interactive",
        task_create_missing_queues=False,
        task_serializer=_SERIALIZER,
        event_serializer=_SERIALIZER,
        accept_content=["json"],
        timezone="UTC",
        enable_utc=True,
        beat_schedule={},
    )
    return app


def _encode(document: Any) -> str:
    try:
        return orjson.dumps(document).decode()
    except orjson.JSONEncodeError:
        # Celery's replies to inspections have numbers as names, and values that only it knows.
        return orjson.dumps(document, default=repr, option=orjson.OPT_NON_STR_KEYS).decode()


def _transport_options(fail_fast: bool) -> dict[str, Any]:
    options: dict[str, Any] = {
        # All our queues are consumed without acknowledgement. With this, each worker would restore unacknowledged
        # messages every 10 s, and end on anything else under their key.
        "ack_emulation": False,
        # Without timeouts a dead connection hangs forever.
        "socket_timeout": 2 if fail_fast else 5,
        "socket_connect_timeout": 1 if fail_fast else 2,
        "socket_keepalive": True,
        # Without these the kernel looks at an idle connection after two hours. Flower has nothing else.
        "socket_keepalive_options": TCP_OPTIONS,
        # A worker waits for messages on a connection whose silence says nothing: each reply is due within a second, and
        # this much later the connection counts as dead.
        "health_check_interval": 5 if fail_fast else 2,
        # One list per queue: priorities are separate queues, and each further list costs every pop.
        "priority_steps": [0],
        "sep": ":",
        "global_keyprefix": BROKER_KEY_PREFIX,
    }
    if fail_fast:
        options |= {"max_retries": 1, "interval_start": 0, "interval_step": 0.05, "interval_max": 0.05}
    return options


def kombu_url(redis_url: str) -> str:
    """Return the URL as kombu spells it: a unix socket is ``redis+socket://``, its database ``virtual_host``."""
    parts = urlsplit(redis_url)
    if parts.scheme == "rediss" and "ssl_" not in parts.query:
        # By itself kombu would take any certificate. redis-py, our other client, checks it by default.
        return parts._replace(query="&".join(filter(None, (parts.query, "ssl_cert_reqs=required")))).geturl()
    if parts.scheme != "unix":
        return redis_url
    query = parts.query.replace("db=", "virtual_host=")
    # Not `urlunsplit`: it leaves the slashes out where the host is empty, and kombu then reads an AMQP host.
    return f"redis+socket://{parts.netloc}{parts.path}?{query}"
