"""What the contract of doors needs of each: how its clients send, read and cancel, and what refusals look like."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol

import httpx2
import orjson

from nova_workers.base.vocabulary import DoorName

Ability = Literal["read", "cancel", "continue", "answer", "resume"]
"""What a protocol may lack: reading a run by its id, canceling one, naming the thread that a message continues,
answering a question of a run, and resuming a stream after an event."""

TEXT = "The text of the message."
"""Stands for the text of a message where a test puts other JSON in its place."""


class Refusal(NamedTuple):
    """What a client learns of a request that was refused. At least a code or a status.

    Attributes:
        code: The fleet's code, whatever the protocol calls it; None if its form has no place for it.
        field: The field that is named.
        status: The HTTP status; None where the protocol's errors have none of their own, as in a JSON-RPC result.
    """

    code: str | None
    field: str | None
    status: int | None

    def is_like(self, status: int, code: str) -> bool:
        """Return whether it says this, as far as its protocol can."""
        return (self.code, self.status) != (None, None) and self.code in {code, None} and self.status in {status, None}


class Outcome(NamedTuple):
    """What a client sees of a run.

    Attributes:
        status: ``waiting`` is a run that asks its client or a person for something.
        text: What the agent answered.
    """

    status: Literal["working", "waiting", "succeeded", "failed", "canceled"]
    text: str


@dataclass(frozen=True)
class DoorEvent:
    """An event of a stream.

    Attributes:
        id: What a client that resumes says that it has; None for an event after which it cannot.
        content: The event without what differs each time it is sent.
    """

    id: str | None
    content: Any


@dataclass(frozen=True)
class DoorRequest:
    """An HTTP request of a client.

    Attributes:
        body: The body as JSON; None for none.
    """

    method: str
    path: str
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    async def send(self, http: httpx2.AsyncClient) -> httpx2.Response:
        """Send it, and return the response whole."""
        return await self.send_bytes(http, b"" if self.body is None else orjson.dumps(self.body))

    async def send_bytes(self, http: httpx2.AsyncClient, content: bytes) -> httpx2.Response:
        """Send it with another body."""
        return await http.request(self.method, self.path, content=content, headers=self._sent_headers)

    async def send_with(self, http: httpx2.AsyncClient, raw: bytes) -> httpx2.Response:
        """Send it with other JSON in the place of its text."""
        return await self.send_bytes(http, orjson.dumps(self.body).replace(orjson.dumps(TEXT), raw))

    async def send_until(self, http: httpx2.AsyncClient, is_enough: Callable[[bytes], bool]) -> httpx2.Response:
        """Send it, leave once enough of the response has come, and return that."""
        found = b""
        body = None if self.body is None else orjson.dumps(self.body)
        async with http.stream(self.method, self.path, content=body, headers=self._sent_headers) as response:
            async for piece in response.aiter_raw():
                found += piece
                if is_enough(found):
                    break
        return httpx2.Response(response.status_code, headers=response.headers, content=found, request=response.request)

    def plus(self, **headers: str) -> DoorRequest:
        """Return it with further headers; underscores in their names are hyphens."""
        return replace(self, headers={**self.headers, **{name.replace("_", "-"): headers[name] for name in headers}})

    @property
    def _sent_headers(self) -> dict[str, str]:
        return {"content-type": "application/json", **{name.lower(): value for name, value in self.headers.items()}}


class DoorClient(Protocol):
    """A client of one door, as far as its protocol has what the contract is about."""

    @property
    def name(self) -> str:
        """The name of the test's parameter."""
        ...

    @property
    def door(self) -> DoorName:
        """The door of NOVA_DOORS."""
        ...

    @property
    def prefix(self) -> str:
        """The beginning of its paths, without a slash at its end."""
        ...

    @property
    def can(self) -> frozenset[Ability]:
        """What its protocol has of what some lack."""
        ...

    def requests(self, run_id: str) -> Sequence[DoorRequest]:
        """Return a valid request of each kind, one of them a message; those of a run are about this run of ours."""
        ...

    def message(
        self, text: str = TEXT, *, agent: str = "nova", request_id: str | None = None, thread_id: str | None = None
    ) -> DoorRequest:
        """Return a request that sends a message.

        Args:
            text: It is in the body once, as a JSON string.
            agent: The agent.
            request_id: The id by which a client names the request in this protocol, however it came by it.
            thread_id: The thread of ours that it continues, for doors that can ``continue``.
        """
        ...

    async def post(self, http: httpx2.AsyncClient, request: DoorRequest) -> httpx2.Response:
        """Send a message without waiting for its answer: of a stream, return what has the run's id."""
        ...

    async def run_id_of(self, http: httpx2.AsyncClient, answer: httpx2.Response) -> str:
        """Return the run of ours that a message made. Fails for a refusal."""
        ...

    def stream(self, run_id: str) -> DoorRequest:
        """Return a request that is answered with a stream: of this run if the protocol can, else of a new one."""
        ...

    async def read(self, http: httpx2.AsyncClient, run_id: str) -> httpx2.Response:
        """Read what became of a run, for doors that can ``read``."""
        ...

    async def cancel(self, http: httpx2.AsyncClient, run_id: str) -> httpx2.Response:
        """Cancel a run, for doors that can ``cancel``."""
        ...

    async def answer(self, http: httpx2.AsyncClient, run_id: str, wait_id: str, text: str) -> httpx2.Response:
        """Answer a question of a run, for doors that can ``answer``."""
        ...

    async def events(self, http: httpx2.AsyncClient, run_id: str, after: str | None = None) -> list[DoorEvent]:
        """Follow a run to its end, for doors that can ``resume``."""
        ...

    def outcome_of(self, answer: httpx2.Response) -> Outcome:
        """Return what a response says of a run: that of `read`, or of a message whose answer was waited for."""
        ...

    def refusal_of(self, answer: httpx2.Response) -> Refusal:
        """Return what a response refuses, and why. Fails for another form than the protocol's, and for a success."""
        ...
