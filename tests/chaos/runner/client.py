"""The recording client: sends requests to both APIs, and writes down each request, answer and event.

It is a client by the documents alone: it repeats a submission with its Idempotency-Key until it is answered, and it
follows a run by `Last-Event-ID` until `stream_end` with `final: true`, over connections that it breaks at random.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import asdict
from typing import Any

import httpx2

from tests.chaos.history import Ack, Event, Recorder, Submission

Json = dict[str, Any]

_TIMEOUT_S = 10.0
_SILENCE_S = 40.0
"""Longer than two heartbeats."""
_PAUSE_S = (0.2, 1.0)
_REFUSED = frozenset({400, 401, 403, 404, 409, 410, 422})
"""Answers that a repetition would not change."""


class RecordingClient:
    """Talks to the APIs, and answers the questions of runs that it follows. Close it by `http`.

    Args:
        urls: Of the APIs; each request goes to a random one.
        api_key: Of every request.
        recorder: The record.
        rng: Decides where requests go and when connections break.
    """

    def __init__(self, urls: list[str], api_key: str, recorder: Recorder, rng: random.Random) -> None:
        self._urls = urls
        self._recorder = recorder
        self._rng = rng
        self._answers: set[asyncio.Task[Json | None]] = set()
        self.http = httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {api_key}"},
            timeout=_TIMEOUT_S,
            limits=httpx2.Limits(max_connections=None),
        )

    async def submit(self, submission: Submission, body: Json) -> Json | None:
        """Send a message until it is answered, with one key; return the run, or None if it was refused."""
        self._record("submission", asdict(submission))
        path = "/v1/runs" if submission.thread is None else f"/v1/threads/{submission.thread}/runs"
        headers = {"Idempotency-Key": submission.key}
        return await self.request("POST", path, {**body, "metadata": {"key": submission.key}}, headers, submission.key)

    async def request(
        self, method: str, path: str, body: Json | None = None, headers: Json | None = None, key: str | None = None
    ) -> Json | None:
        """Send a request until it is answered with success or refused; return the answer's body, or None."""
        while True:
            try:
                url = self._rng.choice(self._urls)
                answer = await self.http.request(method, f"{url}{path}", json=body, headers=headers)
            except httpx2.TransportError as error:
                self._acknowledge(path, key, error=f"{type(error).__name__}: {error}")
            else:
                given = _json(answer)
                self._acknowledge(path, key, status=answer.status_code, given=given)
                if answer.is_success:
                    return given
                if answer.status_code in _REFUSED:
                    return None
            await self.pause()

    async def follow(self, follower: str, run: str) -> Json:
        """Follow a run to its end, over connections that break at random; return the last event's data."""
        after, connection = "", 0
        while True:
            connection += 1
            patience = self._rng.choice((3, 10, 40, 1_000, 1_000))
            try:
                async with aclosing(self._events(run, after)) as events:
                    async for event_id, kind, data in events:
                        after = event_id
                        event = Event(0.0, follower, run, connection, event_id, kind, data)
                        self._record("event", asdict(event))
                        if kind == "stream_end" and data.get("final"):
                            return data
                        if kind == "waiting" and data.get("kind") == "user":
                            self._answer(run)
                        patience -= 1
                        if patience == 0:
                            break
                    else:
                        await self.pause()
            except (httpx2.TransportError, httpx2.SSEError) as error:
                self._acknowledge(f"/v1/runs/{run}/events", None, error=f"{type(error).__name__}: {error}")
                await self.pause()

    def _answer(self, run: str) -> None:
        """Answer a run's question in the background; one that was answered is refused."""
        task = asyncio.create_task(self.request("POST", f"/v1/runs/{run}/answers", {"text": "What you like."}))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def pause(self) -> None:
        """Wait a little before the next try."""
        await asyncio.sleep(self._rng.uniform(*_PAUSE_S))

    async def _events(self, run: str, after: str) -> AsyncGenerator[tuple[str, str, Json]]:
        path = f"/v1/runs/{run}/events"
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": after} if after else {})
        timeout = httpx2.Timeout(_TIMEOUT_S, read=_SILENCE_S)
        url = f"{self._rng.choice(self._urls)}{path}"
        async with self.http.stream("GET", url, headers=headers, timeout=timeout) as answer:
            if answer.status_code != 200:
                await answer.aread()
                self._acknowledge(path, None, status=answer.status_code, given=_json(answer))
                return
            async for event in httpx2.EventSource(answer):
                if event.id:
                    yield event.id, event.event, json.loads(event.data)

    def _acknowledge(
        self,
        path: str,
        key: str | None,
        *,
        status: int | None = None,
        given: Json | None = None,
        error: str | None = None,
    ) -> None:
        given = given or {}
        run: str | None = given.get("id")
        is_run = run is not None and run.startswith("run_")
        ack = Ack(
            0.0,
            path,
            key,
            status,
            run=run if is_run else None,
            thread=given.get("thread_id"),
            run_status=given.get("status") if is_run else None,
            code=given.get("code"),
            error=error,
        )
        self._record("ack", asdict(ack))

    def _record(self, what: str, fields: Json) -> None:
        del fields["at"]
        self._recorder.write(what, **fields)


def _json(answer: httpx2.Response) -> Json:
    try:
        given = answer.json()
    except ValueError:
        return {}
    return given if isinstance(given, dict) else {}
