"""The form of messages in the broker, which kombu and Celery do not check: any other would end a worker.

There are two levels. `unreadable` checks the bytes of any message before kombu reads them: a doorbell, a command of
remote control, a reply to one. The other forms are those of what kombu makes of doorbells and commands.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

_MAX_BYTES = 4 * 1024 * 1024
"""A doorbell has 1.2 KB; the reply of a worker with 500 busy slots to an inspection about 700 KB."""

_PLAIN_BYTES = 4_000

_Id = Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]{1,200}$")]
_Text = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$", max_length=10_000)]
"""The pattern also refuses half of a surrogate pair, which no log takes."""


class _Form(BaseModel):
    """Strict, since kombu converts nothing. Unknown fields may be those of another release."""

    model_config = ConfigDict(strict=True, extra="ignore")


class _DeliveryInfo(_Form):
    exchange: _Text
    routing_key: _Text


class _Properties(_Form):
    delivery_tag: _Id
    body_encoding: Literal["base64"]
    delivery_info: _DeliveryInfo
    correlation_id: _Text | None = None
    reply_to: _Text | None = None


class _AnyHeaders(_Form):
    compression: None = None
    """Kombu would decompress any amount."""


class _Envelope(_Form):
    body: Annotated[str, StringConstraints(min_length=1)]
    content_type: Annotated[Literal["application/json"], Field(alias="content-type")]
    content_encoding: Annotated[Literal["utf-8"], Field(alias="content-encoding")]
    headers: _AnyHeaders
    properties: _Properties


class DoorbellHeaders(_Form):
    """Celery's headers. Those that change when or how often a task is executed have the values that we send."""

    task: _Id
    id: _Id
    eta: None = None
    expires: None = None
    group: None = None
    shadow: None = None
    timelimit: Annotated[list[None], Field(max_length=2)] | None = None
    retries: Literal[0] = 0
    root_id: _Id | None = None
    parent_id: _Id | None = None
    argsrepr: _Text = ""
    kwargsrepr: _Text = ""
    origin: _Text | None = None
    ignore_result: bool | None = False
    """None in the ticks of beat."""
    replaced_task_nesting: Literal[0] = 0
    stamped_headers: Annotated[list[str], Field(max_length=0)] | None = None
    stamps: Annotated[dict[str, object], Field(max_length=0)] | None = None


class _Canvas(_Form):
    """Tasks that Celery would send after this one."""

    callbacks: None = None
    errbacks: None = None
    chain: None = None
    chord: None = None


DoorbellBody: TypeAdapter[tuple[list[Any], dict[str, str], object]] = TypeAdapter(
    Annotated[
        tuple[Annotated[list[object], Field(max_length=0)], dict[str, _Id], _Canvas],
        Field(strict=False),
    ]
)
"""Arguments, keyword arguments and what comes after."""


class _ReplyTo(_Form):
    exchange: Literal["reply.celery.pidbox"]
    routing_key: _Id


class CommandHeaders(_Form):
    """The sender's logical clock, which the receiver's then exceeds."""

    clock: Annotated[int, Field(ge=0, lt=2**53)] = 0


class CommandForm(_Form):
    """A command of Celery's remote control."""

    model_config = ConfigDict(strict=True, extra="forbid")

    method: _Text
    arguments: dict[str, object] | None = None
    destination: list[str] | None = None
    pattern: str | None = None
    matcher: str | None = None
    ticket: _Id | None = None
    reply_to: _ReplyTo | None = None


def unreadable(raw: bytes) -> str | None:
    """Return why kombu cannot read a message; None if it can."""
    if len(raw) > _MAX_BYTES:
        return f"{len(raw)} bytes, at most {_MAX_BYTES} are read"
    try:
        document = orjson.loads(raw) if _is_plain(raw) else json.loads(raw.decode(), object_hook=_refuse_typed_value)
        base64.b64decode(_Envelope.model_validate(document).body)
    except ValidationError as error:
        return first_error(error)
    except (ValueError, RecursionError) as error:
        return f"{type(error).__name__}: {error}"[:200]
    return None


def first_error(error: ValidationError) -> str:
    """Return the first thing that is wrong, without the value, which may be secret."""
    first = error.errors(include_input=False, include_url=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'message'}: {first['msg']}"[:200]


def _is_plain(raw: bytes) -> bool:
    """Return whether orjson reads it as kombu's parser does: all of our messages, in a tenth of the time.

    Python's parser fails at deeper nesting and at longer numbers than fit here, and reads escaped names.
    """
    return (
        len(raw) < _PLAIN_BYTES
        and b"\\" not in raw
        and b"__type__" not in raw
        and raw.count(b"[") + raw.count(b"{") < 50
    )


def _refuse_typed_value(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Refuse what kombu converts to a date, a number or bytes: none of ours, and a wrong value raises any error."""
    if "__type__" in found:
        raise ValueError(f"a value of the type {found['__type__']!r:.50}")
    return found
