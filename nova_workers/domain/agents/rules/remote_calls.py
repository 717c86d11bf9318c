"""Calls to agents elsewhere, by the A2A protocol 1.0: JSON-RPC under the guard of outbound requests.

Only what a caller needs of the protocol is here: a card, a message, and a task that is read until it has ended. The
SDK's client would send its requests past the guard.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import urlsplit

import orjson
from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError
from pydantic.alias_generators import to_camel

from nova_workers.base.clock import Clock
from nova_workers.base.errors import OutboundFailed, ToolFailure
from nova_workers.base.outbound.requests import Outbound, OutboundResponse
from nova_workers.contracts.content import JsonObject, storable

_VERSION: Final = "1.0"
_BINDING: Final = "JSONRPC"
_PORTS: Final = {"http": 80, "https": 443}
_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 10.0
_UNANSWERED_S: Final = 60.0
"""A server that does not answer is asked again for this long."""
_PASSING: Final = frozenset(
    {
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.TOO_EARLY,
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
"""Statuses of servers that may answer later."""
_ENDS: Final = frozenset({"TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED"})
_ASKS: Final = frozenset({"TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED"})

_Result = TypeVar("_Result")
_Id = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]{1,200}$")]


@dataclass(frozen=True, slots=True)
class RemoteAgent:
    """An agent elsewhere.

    Attributes:
        card_url: The address of its card.
        headers: Sent with each request, such as credentials.
    """

    card_url: str
    headers: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class RemoteEndpoint:
    """Where an agent elsewhere takes calls.

    Attributes:
        url: Its address for JSON-RPC, on the server of its card.
        headers: Sent with each request.
        fixed: Parameters of each call.
    """

    url: str
    headers: Mapping[str, str] = field(repr=False)
    fixed: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RemoteTask:
    """A task of an agent elsewhere.

    Attributes:
        state: Its state, as the protocol names it.
        said: The text of its status: a question, or a reason.
        made: The text of its artifacts.
    """

    id: str
    context_id: str | None
    state: str
    said: str
    made: str

    @property
    def has_ended(self) -> bool:
        """Whether it does not change any more."""
        return self.state in _ENDS

    @property
    def asks(self) -> bool:
        """Whether it waits for its client."""
        return self.state in _ASKS


@dataclass(frozen=True, slots=True)
class RemoteReply:
    """A message that an agent elsewhere answers with, in place of a task."""

    said: str
    context_id: str | None


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=to_camel)


class _Interface(_Wire):
    url: str = ""
    protocol_binding: str = ""
    protocol_version: str = ""
    tenant: _Id | None = None


class _Skill(_Wire):
    name: str = ""


class _Card(_Wire):
    name: str = ""
    description: str = ""
    skills: tuple[_Skill, ...] = ()
    supported_interfaces: tuple[_Interface, ...] = ()


class _Part(_Wire):
    text: str | None = None
    data: Any = None
    url: str | None = None
    raw: str | None = None
    filename: str | None = None
    media_type: str | None = None


class _Message(_Wire):
    context_id: _Id | None = None
    parts: tuple[_Part, ...] = ()


class _Status(_Wire):
    state: str
    message: _Message | None = None


class _Artifact(_Wire):
    parts: tuple[_Part, ...] = ()


class _Task(_Wire):
    id: _Id
    context_id: _Id | None = None
    status: _Status
    artifacts: tuple[_Artifact, ...] = ()


class _Answer(_Wire):
    task: _Task | None = None
    message: _Message | None = None


_WireT = TypeVar("_WireT", bound=_Wire)


class RemoteCalls:
    """Speaks to agents elsewhere. Keeps nothing."""

    def __init__(self, outbound: Outbound, clock: Clock) -> None:
        self._outbound = outbound
        self._clock = clock

    async def description(self, agent: RemoteAgent) -> str:
        """Return the name, description and skills in the card of an agent, in one line. The server is asked once.

        Raises:
            OutboundFailed: The guard refuses the address, or the server does not answer.
            ToolFailure: There is no card.
        """
        card = await self._card(agent)
        skills = ", ".join(skill.name for skill in card.skills)
        told = (card.name, card.description, f"Skills: {skills}" if skills else "")
        return storable(" ".join(" ".join(part.split()) for part in told if part))

    async def reach(self, agent: RemoteAgent, *, deadline_s: float) -> RemoteEndpoint:
        """Return where an agent takes calls, by its card.

        Args:
            deadline_s: Until when of the clock a server that does not answer is asked again, which holds for each
                method here. The last request may end later.

        Raises:
            OutboundFailed: The guard refuses the address, or the server does not answer.
            ToolFailure: There is no card, or it has no address of this version on its own server.
        """
        card = await self._insist(lambda: self._card(agent), deadline_s)
        found = _interface_of(card, agent.card_url)
        fixed = {} if found.tenant is None else {"tenant": found.tenant}
        return RemoteEndpoint(found.url, agent.headers, fixed)

    async def send(
        self, endpoint: RemoteEndpoint, message: JsonObject, *, deadline_s: float
    ) -> RemoteTask | RemoteReply:
        """Send a message, and return what answers it at once. A message that is sent again has the same id.

        Raises:
            OutboundFailed: The server does not answer.
            ToolFailure: The agent refuses the message.
        """
        configuration = {"returnImmediately": True, "historyLength": 0}
        params = {"message": message, "configuration": configuration}
        answer = _read(_Answer, await self._call(endpoint, "SendMessage", params, deadline_s), "a task or a message")
        if answer.task is not None:
            return _task(answer.task)
        if answer.message is not None:
            return RemoteReply(_text_of(answer.message.parts), answer.message.context_id)
        raise ToolFailure("The agent's server answered with neither a task nor a message.")

    async def settled(self, endpoint: RemoteEndpoint, task_id: str, *, deadline_s: float) -> RemoteTask:
        """Return a task when it has ended or asks something; as it is then, at the deadline.

        Raises:
            OutboundFailed: The server does not answer.
            ToolFailure: The agent has no such task.
        """
        params = {"id": task_id, "historyLength": 0}
        pause_s = _FIRST_PAUSE_S
        while True:
            task = _task(_read(_Task, await self._call(endpoint, "GetTask", params, deadline_s), "a task"))
            if task.has_ended or task.asks or self._clock.monotonic_s() + pause_s > deadline_s:
                return task
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _card(self, agent: RemoteAgent) -> _Card:
        # A redirect would take the headers elsewhere.
        response = await self._outbound.request("GET", agent.card_url, headers=agent.headers, follow=False)
        _check_answered(response)
        if response.status != HTTPStatus.OK:
            raise ToolFailure(f"The agent's card cannot be read: its server answered {response.status}.")
        return _read(_Card, _document(response), "a card")

    async def _call(self, endpoint: RemoteEndpoint, method: str, params: JsonObject, deadline_s: float) -> Any:
        body = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {**endpoint.fixed, **params}})
        return await self._insist(lambda: self._post(endpoint, body), deadline_s)

    async def _post(self, endpoint: RemoteEndpoint, body: bytes) -> Any:
        headers = {**endpoint.headers, "content-type": "application/json", "a2a-version": _VERSION}
        response = await self._outbound.request("POST", endpoint.url, headers=headers, content=body, follow=False)
        _check_answered(response)
        answer = _document(response)
        if not isinstance(answer, dict):
            raise ToolFailure(f"The agent's server answered {response.status} with what is no response to the call.")
        error = answer.get("error")
        if error is not None:
            reason = error.get("message") if isinstance(error, dict) else None
            raise ToolFailure(f"The agent's server refuses: {storable(str(reason or 'without a reason'))}")
        return answer.get("result")

    async def _insist(self, request: Callable[[], Awaitable[_Result]], deadline_s: float) -> _Result:
        """Return the result of a request, which is repeated while the server does not answer."""
        until_s = min(deadline_s, self._clock.monotonic_s() + _UNANSWERED_S)
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return await request()
            except OutboundFailed as error:
                if error.refused or self._clock.monotonic_s() + pause_s > until_s:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _check_answered(response: OutboundResponse) -> None:
    if response.status in _PASSING:
        raise OutboundFailed(f"The agent's server does not answer now: its status is {response.status}.", refused=False)
    if response.truncated:
        raise ToolFailure(f"The agent's server answered with more than the {len(response.body):,} bytes that are read.")


def _document(response: OutboundResponse) -> Any:
    try:
        return orjson.loads(response.body)
    except orjson.JSONDecodeError:
        return None


def _read(kind: type[_WireT], given: object, what: str) -> _WireT:
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        where = f" ({place}: {first['msg']})" if place else ""
        raise ToolFailure(f"The agent's server answered with what is not {what}{where}.") from error


def _interface_of(card: _Card, card_url: str) -> _Interface:
    """Return how an agent is called by JSON-RPC: on the server of its card, since it gets the same credentials."""
    major = _VERSION.partition(".")[0]
    for each in card.supported_interfaces:
        if each.protocol_binding == _BINDING and each.protocol_version.partition(".")[0] == major:
            if _server_of(each.url) != _server_of(card_url):
                raise ToolFailure(
                    f"The agent's card names an address at another server, {storable(each.url)!r:.200}: credentials "
                    "are not sent there. The author of this agent's configuration can name the card of that server."
                )
            return each
    raise ToolFailure(f"The agent's card has no address for {_BINDING} of A2A {_VERSION}.")


def _server_of(url: str) -> tuple[str, str | None, int | None] | None:
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return None


def _task(task: _Task) -> RemoteTask:
    said = "" if task.status.message is None else _text_of(task.status.message.parts)
    made = [_text_of(artifact.parts) for artifact in task.artifacts]
    return RemoteTask(task.id, task.context_id, task.status.state, said, "\n\n".join(text for text in made if text))


def _text_of(parts: Iterable[_Part]) -> str:
    """Return the texts, data and addresses of parts, one a line."""
    return storable("\n".join(line for part in parts if (line := _line_of(part))))


def _line_of(part: _Part) -> str:
    if part.text is not None:
        return part.text
    if part.data is not None:
        return orjson.dumps(part.data).decode()
    name = part.filename or "file"
    if part.url is not None:
        return f"[{name}: {part.url}]"
    return "" if part.raw is None else f"[{name}: {part.media_type or 'bytes'}, left out]"
