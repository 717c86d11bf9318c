"""Builds the messages that Celery's producer would put into the list of a queue, without Celery.

Above: the dispatcher, which pushes them. Below: version 2 of Celery's message protocol in kombu's envelope for Redis.
`tests/unit/broker/test_doorbell_messages.py` compares each field with those of the installed Celery.
"""

from __future__ import annotations

import base64
import os
import socket
import uuid
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import orjson

_NO_FOLLOWING_TASKS: Final = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}


class DoorbellEncoder:
    """Encodes the doorbells of one process."""

    def __init__(self) -> None:
        self._origin = f"gen{os.getpid()}@{socket.gethostname()}"
        self._reply_to = str(uuid.uuid4())
        self._constant = cache(self._build_constant)

    def encode(self, task: str, queue: str, arguments: Mapping[str, str]) -> bytes:
        """Return a new message, with an id of its own."""
        task_id = str(uuid.uuid4())
        headers, properties = self._constant(task, queue)
        return orjson.dumps(
            {
                "body": base64.b64encode(orjson.dumps(((), arguments, _NO_FOLLOWING_TASKS))).decode(),
                "content-encoding": "utf-8",
                "content-type": "application/json",
                # Flower shows the text of the arguments.
                "headers": {**headers, "id": task_id, "root_id": task_id, "kwargsrepr": repr(arguments)},
                "properties": {**properties, "correlation_id": task_id, "delivery_tag": task_id},
            }
        )

    def _build_constant(self, task: str, queue: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the headers and the properties that all doorbells for a task and a queue share."""
        headers = {
            "lang": "py",
            "task": task,
            "shadow": None,
            "eta": None,
            "expires": None,
            "group": None,
            "group_index": None,
            "retries": 0,
            "timelimit": [None, None],
            "parent_id": None,
            "argsrepr": "()",
            "origin": self._origin,
            "ignore_result": True,
            "replaced_task_nesting": 0,
            "stamped_headers": None,
            "stamps": {},
        }
        properties = {
            "reply_to": self._reply_to,
            "delivery_mode": 2,
            "delivery_info": {"exchange": "", "routing_key": queue},
            "priority": 0,
            "body_encoding": "base64",
        }
        return headers, properties
