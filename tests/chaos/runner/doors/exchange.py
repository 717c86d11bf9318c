"""What clients of doors have in common: requests that are repeated until they are answered, and streams that break."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import httpx2

from tests.chaos.history import Ack, Recorder

Json = dict[str, Any]

_TIMEOUT_S: Final = 10.0
_SILENCE_S: Final = 40.0
_PAUSE_S: Final = (0.2, 1.0)
_REFUSED: Final = range(400, 500)
_PASSING: Final = (408, 429)


class DoorRefused(Exception):
    """The door refused a request that it should take."""


class Exchange:
    """The requests of clients.

    Args:
        urls: Of the APIs; each request goes to a random one.
        api_key: Of every request.
        agent: Who is asked.
        recorder: The record.
        rng: Of all choices.
    """

    def __init__(self, urls: list[str], api_key: str, agent: str, recorder: Recorder, rng: random.Random) -> None:
        self.agent = agent
        self.api_key = api_key
        self._urls = urls
        self._recorder = recorder
        self._rng = rng
        headers = {"Authorization": f"Bearer {api_key}"}
        self._http = httpx2.AsyncClient(headers=headers, timeout=_TIMEOUT_S)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def until_answered(
        self,
        path: str,
        key: str,
        body: Json | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        run_of: Callable[[Json], str | None] = lambda _: None,
        recorded_as: str | None = None,
    ) -> Json:
        """Send a request, with the same id, until it is answered.

        Args:
            path: Where to.
            key: The message's, for the record.
            body: None for a GET.
            headers: Further headers.
            run_of: Returns the run of an answer.
            recorded_as: The path in the record, for a look-up that is none of the client's own.

        Raises:
            DoorRefused: A repetition would not change the answer.
        """
        while True:
            try:
                url = self._rng.choice(self._urls)
                method = "GET" if body is None else "POST"
                answer = await self._http.request(method, f"{url}{path}", json=body, headers=headers)
            except httpx2.TransportError as error:
                self._acknowledge(recorded_as or path, key, error=f"{type(error).__name__}: {error}")
            else:
                given = answer.json() if answer.is_success else {}
                # An outage within a JSON-RPC response, or a result of a tool that reports one.
                is_away = _is_away(given)
                if answer.is_success and not is_away:
                    self._acknowledge(recorded_as or path, key, status=answer.status_code, run=run_of(given))
                    return given
                if not is_away:
                    self._refuse(answer, key)
            await self.pause()

    async def stream(
        self,
        path: str,
        key: str,
        body: Json | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        begun: Callable[[Mapping[str, str]], None] = lambda _: None,
    ) -> AsyncGenerator[httpx2.ServerSentEvent]:
        """Yield the events of a stream until it ends, or breaks: at random, or by a fault.

        Args:
            path: Where to.
            key: The message's, for the record.
            body: None for a GET.
            headers: Further headers.
            begun: Takes the headers of the response.

        Raises:
            DoorRefused: A repetition would not change the answer.
        """
        url, method = self._rng.choice(self._urls), "GET" if body is None else "POST"
        request = self._http.build_request(method, f"{url}{path}", json=body, headers=headers)
        request.extensions["timeout"]["read"] = _SILENCE_S
        patience = self._rng.choice((2, 5, 20, 1_000))
        try:
            answer = await self._http.send(request, stream=True)
            try:
                if answer.status_code != 200:
                    await answer.aread()
                    self._refuse(answer, key)
                    await self.pause()
                    return
                self._acknowledge(path, key, status=200)
                begun(answer.headers)
                async for event in httpx2.EventSource(answer):
                    yield event
                    patience -= 1
                    if patience == 0:
                        return
            finally:
                await answer.aclose()
        except (httpx2.TransportError, httpx2.SSEError) as error:
            self._acknowledge(path, key, error=f"{type(error).__name__}: {error}")
            await self.pause()

    def url(self) -> str:
        """Return the URL of an API, at random."""
        return self._rng.choice(self._urls)

    def choose(self, among: Sequence[int]) -> int:
        """Return one of these, at random."""
        return self._rng.choice(among)

    async def pause(self) -> None:
        """Wait a little, at random."""
        await asyncio.sleep(self._rng.uniform(*_PAUSE_S))

    def _refuse(self, answer: httpx2.Response, key: str) -> None:
        """Record an answer without success.

        Raises:
            DoorRefused: A repetition would not change it.
        """
        path = answer.request.url.path
        self._acknowledge(path, key, status=answer.status_code)
        if answer.status_code in _REFUSED and answer.status_code not in _PASSING:
            raise DoorRefused(f"{path} was answered with {answer.status_code}: {answer.text[:500]}")

    def _acknowledge(
        self, path: str, key: str, *, status: int | None = None, run: str | None = None, error: str | None = None
    ) -> None:
        fields = asdict(Ack(0.0, path, key, status, run=run, error=error))
        del fields["at"]
        self._recorder.write("ack", **fields)


def data_of(event: httpx2.ServerSentEvent) -> Any:
    """Return the data of an event."""
    return json.loads(event.data)


def _is_away(message: Json) -> bool:
    error = message.get("error")
    said = error.get("data") if isinstance(error, dict) else None
    if isinstance(said, list):
        # Of A2A: the first detail has what the fleet says.
        said = next((each.get("metadata") for each in said if isinstance(each, dict)), None)
    if said is None and isinstance(result := message.get("result"), dict) and result.get("isError"):
        said = result.get("structuredContent")
    return isinstance(said, dict) and (
        str(said.get("status")) == "503" or said.get("code") in {"unavailable", "outcome_unknown"}
    )
