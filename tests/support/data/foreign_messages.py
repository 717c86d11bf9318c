"""Messages in the broker that no process of the fleet sends, by what is wrong with them."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from typing import Any, Final

_MISSING: Final = object()


def doorbell(
    *,
    body: object = _MISSING,
    text: object = _MISSING,
    properties: object = _MISSING,
    headers: object = _MISSING,
    **top: Any,
) -> bytes:
    """Return a doorbell as Celery encodes it, with changes; a value that is `_MISSING` leaves a field out."""
    content = [[], {"run_id": "run_none", "thread_id": "thr_none"}, _CANVAS] if body is _MISSING else body
    message: dict[str, Any] = {
        "body": base64.b64encode(json.dumps(content).encode()).decode() if text is _MISSING else text,
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {**_HEADERS, **headers}
        if isinstance(headers, dict)
        else _HEADERS
        if headers is _MISSING
        else headers,
        "properties": (
            {**_PROPERTIES, **properties}
            if isinstance(properties, dict)
            else _PROPERTIES
            if properties is _MISSING
            else properties
        ),
        **{name.replace("_", "-"): value for name, value in top.items()},
    }
    return json.dumps(_without_missing(message)).encode()


def command(body: object, **headers: object) -> bytes:
    """Return a command of remote control as kombu encodes it."""
    return doorbell(body=body, headers={"task": _MISSING, "id": _MISSING, "clock": 1, **headers})


def _without_missing(found: Any) -> Any:
    if isinstance(found, dict):
        return {name: _without_missing(value) for name, value in found.items() if value is not _MISSING}
    return found


_CANVAS: Final = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
_HEADERS: Final[dict[str, object]] = {
    **{"lang": "py", "task": "nova.run_agent", "id": "id-1", "shadow": None, "eta": None, "expires": None},
    **{"group": None, "group_index": None, "retries": 0, "timelimit": [None, None], "root_id": "id-1"},
    **{"parent_id": None, "argsrepr": "()", "kwargsrepr": "{}", "origin": "test", "ignore_result": True},
    **{"replaced_task_nesting": 0, "stamped_headers": None, "stamps": {}},
}
_PROPERTIES: Final[dict[str, object]] = {
    **{"correlation_id": "id-1", "reply_to": "", "delivery_mode": 2, "priority": 0, "body_encoding": "base64"},
    **{"delivery_tag": "tag-1", "delivery_info": {"exchange": "", "routing_key": "interactive"}},
}
_AN_HOUR_FROM_NOW = "2199-01-01T00:00:00+00:00"

DOORBELLS: Final[dict[str, bytes]] = {
    # The bytes.
    "no JSON": b"hello",
    "empty": b"",
    "white space": b"  ",
    "an empty list": b"[]",
    "an empty object": b"{}",
    "null": b"null",
    "a number": b"42",
    "a string": b'"run_1"',
    "true": b"true",
    "not a number": b"NaN",
    "no UTF-8": b"\xff\xfe\x00\x80",
    "UTF-16": doorbell().decode().encode("utf-16"),
    "a NUL byte": b'{"body": "\x00"}',
    "half a message": doorbell()[:200],
    "two messages": doorbell() * 2,
    "a pickle": pickle.dumps({"task": "nova.run_agent"}),
    "compressed": zlib.compress(doorbell()),
    "very deep": b"[" * 200_000,
    "very long": b"[" + b"1," * 4_000_000 + b"1]",
    "a number of 5,000 digits": b"1" * 5_000,
    # The envelope.
    "no properties": doorbell(properties=_MISSING, **{"properties_": 1}).replace(b'"properties":', b'"other":'),
    "properties that are null": doorbell(properties=None),
    "properties in a list": doorbell(properties=[1]),
    "no delivery tag": doorbell(properties={"delivery_tag": _MISSING}),
    "a delivery tag that is a list": doorbell(properties={"delivery_tag": [1]}),
    "no delivery info": doorbell(properties={"delivery_info": _MISSING}),
    "a delivery info that is a word": doorbell(properties={"delivery_info": "interactive"}),
    "a route to another queue": doorbell(properties={"delivery_info": {"exchange": "", "routing_key": "else"}}),
    "a route that is a number": doorbell(properties={"delivery_info": {"exchange": "", "routing_key": 5}}),
    "an unknown encoding of the body": doorbell(properties={"body_encoding": "rot13"}),
    "an encoding that is a number": doorbell(properties={"body_encoding": 64}),
    "a reply address that is a list": doorbell(properties={"reply_to": ["x"]}),
    "an unknown content type": doorbell(content_type="application/x-unknown"),
    "a pickled body": doorbell(
        content_type="application/x-python-serialize", text=base64.b64encode(pickle.dumps([])).decode()
    ),
    "a content type that is a number": doorbell(content_type=5),
    "an unknown content encoding": doorbell(content_encoding="klingon"),
    "binary content": doorbell(content_encoding="binary"),
    # The body.
    "no body": doorbell(text=_MISSING, body=None).replace(b'"body":', b'"other":'),
    "a body that is null": doorbell(text=None),
    "a body that is a number": doorbell(text=7),
    "an empty body": doorbell(text=""),
    "a body that is no base64": doorbell(text="a"),
    "a body with letters outside base64": doorbell(text="é" * 8),
    "a body that is no JSON": doorbell(text=base64.b64encode(b"hello").decode()),
    "a body that is no UTF-8": doorbell(text=base64.b64encode(b"\xff\xfe").decode()),
    "a body that is an object": doorbell(body={"run_id": "run_1"}),
    "a body that is too short": doorbell(body=[[], {}]),
    "a body of numbers": doorbell(body=[1, 2, 3]),
    "a body that is very deep": doorbell(text=base64.b64encode(b"[" * 100_000).decode()),
    "arguments by position": doorbell(body=[["run_1", "thr_1"], {}, _CANVAS]),
    "a missing argument": doorbell(body=[[], {"run_id": "run_1"}, _CANVAS]),
    "another argument": doorbell(body=[[], {"run_id": "run_1", "thread_id": "thr_1", "x": "y"}, _CANVAS]),
    "an argument that is a number": doorbell(body=[[], {"run_id": 5, "thread_id": "thr_1"}, _CANVAS]),
    "an argument with a NUL": doorbell(body=[[], {"run_id": "run_\0", "thread_id": "thr_1"}, _CANVAS]),
    "an argument of 300 kB": doorbell(body=[[], {"run_id": "r" * 300_000, "thread_id": "thr_1"}, _CANVAS]),
    "tasks that follow": doorbell(body=[[], {}, {"callbacks": [{"task": "nova.upkeep"}]}]),
    "a chord that is a word": doorbell(body=[[], {}, {"chord": "x"}]),
    "a canvas that is a list": doorbell(body=[[], {}, [1]]),
    # The headers.
    "no headers": doorbell(headers=None),
    "headers in a list": doorbell(headers=["task"]),
    "headers that are a word": doorbell(headers="task"),
    "no task": doorbell(headers={"task": _MISSING}),
    "an older protocol": doorbell(
        headers={"task": _MISSING, "id": _MISSING},
        body={"task": "nova.run_agent", "id": "1", "args": 5, "kwargs": None},
    ),
    "no id": doorbell(headers={"id": _MISSING}),
    "an id that is an object": doorbell(headers={"id": {}}),
    "an unknown task": doorbell(headers={"task": "nova.unknown"}),
    "a task of Celery's": doorbell(headers={"task": "celery.backend_cleanup"}),
    "a task that is a list": doorbell(headers={"task": ["nova.run_agent"]}),
    "a time that is a word": doorbell(headers={"eta": "tomorrow"}),
    "a time in the future": doorbell(headers={"eta": _AN_HOUR_FROM_NOW}),
    "an expiry that is a word": doorbell(headers={"expires": "soon"}),
    "a time limit that is a word": doorbell(headers={"timelimit": "x"}),
    "a time limit": doorbell(headers={"timelimit": [0.001, 0.001]}),
    "retries that are a word": doorbell(headers={"retries": "x"}),
    "an unknown compression": doorbell(headers={"compression": "lzip"}),
    "compression of what is not compressed": doorbell(headers={"compression": "gzip"}),
    "a group": doorbell(headers={"group": "x"}),
    "stamps that are a word": doorbell(headers={"stamped_headers": ["a"], "stamps": "x"}),
    "half a surrogate pair": doorbell(headers={"origin": "\ud800"}),
    "an unknown type of value": doorbell(headers={"x": {"__type__": "x", "__value__": 1}}),
    "a decimal that is none": doorbell(headers={"x": {"__type__": "decimal", "__value__": "x"}}),
    "a type of value that is a list": doorbell(headers={"x": {"__type__": [], "__value__": "x"}}),
}
"""To be pushed to the queue ``interactive``."""

FANOUT: Final[dict[str, bytes]] = {
    **{
        name: DOORBELLS[name]
        for name in ("no JSON", "empty", "null", "a number", "no UTF-8", "very deep", "no properties")
    },
    "a body that is no JSON": DOORBELLS["a body that is no JSON"],
    "a command that is null": command(None),
    "a command that is a list": command([]),
    "an unknown command": command({"method": "explode"}),
    "a command without a name": command({"arguments": {}}),
    "a name that is a list": command({"method": []}),
    "a target that is a number": command({"method": "ping", "destination": 5}),
    "arguments in a list": command({"method": "ping", "arguments": [1]}),
    "a clock that is a word": command({"method": "ping"}, clock="x"),
    "a reply to nowhere": command({"method": "ping", "reply_to": {}, "ticket": "x"}),
    "a reply to another exchange": command(
        {"method": "ping", "reply_to": {"exchange": "celeryev", "routing_key": "x"}, "ticket": "x"}
    ),
    "a shutdown": command({"method": "shutdown"}),
    "a smaller pool": command({"method": "pool_shrink", "arguments": {"n": 100}}),
    "a canceled queue": command({"method": "cancel_consumer", "arguments": {"queue": "interactive"}}),
    "a rate limit": command(
        {"method": "rate_limit", "arguments": {"task_name": "nova.run_agent", "rate_limit": "1/h"}}
    ),
    "another queue": command({"method": "add_consumer", "arguments": {"queue": "else"}}),
}
"""To be published to remote control."""
