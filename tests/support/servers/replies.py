"""What a model server answers, in words that hold for every wire form."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """One part of a stream.

    kind: ``text`` (value: pieces), ``thinking`` (pieces), ``tool`` (id, name, input), ``stall`` (until the client
    leaves), ``sleep`` (seconds), ``cut`` (close the connection), ``end`` (end the response well, in mid-message),
    ``raw`` (bytes), ``event`` (name, data), ``wait`` (an event); with the Messages API also ``block`` (the block as it
    starts, its deltas), with chat completions ``delta``, with the Responses API ``item``.
    """

    kind: str
    value: Any = None


@dataclass(frozen=True)
class Stream:
    """A streamed response."""

    parts: tuple[Part, ...]
    stop_reason: str | None = None
    """None is ``tool_use`` with a tool among the parts, else ``end_turn``."""
    usage: Json = field(default_factory=lambda: {"input_tokens": 10, "output_tokens": 5})
    """In the words of the Messages API; empty: the other forms send none."""
    model: str | None = None
    stop_details: Json | None = None
    error: Json | None = None
    """With which a response of the Responses API fails."""
    begins: asyncio.Event | None = None
    """What it waits for before its first byte."""


@dataclass(frozen=True)
class Status:
    """A response that is an error."""

    code: int
    type: str = "api_error"
    message: str = "no"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    detail: str | None = None
    """The error's code, with the forms of OpenAI."""
    raw: bytes | None = None
    """The whole body."""


@dataclass(frozen=True)
class Drop:
    """No response: the connection closes without a response."""


@dataclass(frozen=True)
class Hang:
    """No response, and the connection stays open; with `pings` it looks alive, as behind a proxy."""

    pings: bool = False


Reply = Stream | Status | Drop | Hang
