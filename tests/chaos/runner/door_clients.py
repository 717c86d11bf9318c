"""Clients of doors: each follows the rules of its protocol, and knows nothing else of the fleet.

A client whose protocol resumes goes on after the last event that it has, at either API. Any other repeats its request
with the same id until it is answered.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import httpx2

from tests.chaos.history import Ack, DoorReading, Recorder, Submission
from tests.chaos.runner.outside import plan_message

Json = dict[str, Any]

_TIMEOUT_S = 10.0
_SILENCE_S = 40.0
_PAUSE_S = (0.2, 1.0)
_REFUSED: Final = range(400, 500)
_PASSING: Final = (408, 429)
_RESPONSES: Final = "/openai/v1/responses"
_ENDS: Final = ("response.completed", "response.failed", "response.incomplete")
_TASKS: Final[Json] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
_MCP: Final = "2026-07-28"


class DoorRefused(Exception):
    """The door refused a request that it should take."""


@dataclass
class _Response:
    """A streamed response as a client joins it from its events."""

    id: str | None = None
    number: int = -1
    texts: dict[str, str] = field(default_factory=dict[str, str])
    done: dict[str, str] = field(default_factory=dict[str, str])
    twice: list[str] = field(default_factory=list[str])
    status: str | None = None

    def take(self, event: Json) -> None:
        """Apply an event, unless the client has it: what came in one piece with the last one comes again."""
        if event["sequence_number"] <= self.number:
            return
        self.number = event["sequence_number"]
        item = event.get("item") or {}
        match event["type"]:
            case "response.created":
                self.id = event["response"]["id"]
            case "response.output_item.added" if item["type"] == "message":
                self.texts[item["id"]] = ""
            case "response.output_text.delta":
                self.texts[event["item_id"]] = self.texts.get(event["item_id"], "") + event["delta"]
            case "response.output_item.done" if item["type"] == "message" and item["status"] == "completed":
                self._done(item)
            case kind if kind in _ENDS:
                self.status = event["response"]["status"]
            case _:
                pass

    def _done(self, item: Json) -> None:
        whole = "".join(part["text"] for part in item["content"])
        joined = self.texts.pop(item["id"], "")
        if item["id"] in self.done:
            self.twice.append(f"{item['id']} was done twice")
        # Pieces that it was given belong to the text, in order and each once.
        if not whole.startswith(joined):
            self.twice.append(f"{item['id']} has the pieces {joined!r} and the text {whole!r}")
        self.done[item["id"]] = whole


class DoorClients:
    """One client of each kind sends a message after the other, until `stop`.

    Args:
        urls: Of the APIs; each request goes to a random one.
        api_key: Of every request.
        agent: Who is asked.
        recorder: The record.
        rng: Of all choices.
        gap_s: Mean time between two messages of a client.
    """

    def __init__(
        self, urls: list[str], api_key: str, agent: str, recorder: Recorder, rng: random.Random, *, gap_s: float
    ) -> None:
        self._urls = urls
        self._agent = agent
        self._recorder = recorder
        self._rng = rng
        self._gap_s = gap_s
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        headers = {"Authorization": f"Bearer {api_key}"}
        self._http = httpx2.AsyncClient(headers=headers, timeout=_TIMEOUT_S)

    def start(self) -> None:
        """Begin."""
        kinds = {
            "openai-stream": self._stream_response,
            "openai-wait": self._await_response,
            "mcp-task": self._follow_task,
        }
        self._tasks = [asyncio.create_task(self._repeat(name, ask)) for name, ask in kinds.items()]

    async def stop(self, timeout_s: float) -> None:
        """Send nothing new, and wait for the last answers; those that are missing then are recorded as such."""
        self._stopping.set()
        await asyncio.wait(self._tasks, timeout=timeout_s)
        for task in self._tasks:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._http.aclose()
        for error in ended:
            if isinstance(error, Exception):
                raise error

    async def _repeat(self, name: str, ask: Callable[[str, str], Awaitable[DoorReading]]) -> None:
        for number in itertools.count(1):
            if self._stopping.is_set():
                return
            key, plan = f"{name}-{number}", f"{name.replace('-', '')}n{number}"
            steps = self._plan()
            words = [step["words"] for step in steps]
            work_s = sum(step["words"] / 5 * step["pace_s"] + 1 for step in steps)
            submission = Submission(0.0, key, name, "plan", plan, "enqueue", work_s=work_s, words=words)
            self._record("submission", asdict(submission))
            reading = DoorReading(0.0, name, key, "", "missing", "")
            try:
                reading = await ask(key, plan_message(plan, steps))
            finally:
                self._record("door", asdict(reading))
            await asyncio.sleep(self._rng.expovariate(1 / self._gap_s))

    def _plan(self) -> list[Json]:
        steps: list[Json] = [
            {"words": self._rng.choice((5, 40)), "pace_s": self._rng.choice((0.0, 0.05)), "tool": True}
            for _ in range(self._rng.choice((0, 1, 2)))
        ]
        return [*steps, {"words": self._rng.choice((10, 60)), "pace_s": 0.05}]

    async def _stream_response(self, key: str, message: str) -> DoorReading:
        """Follow a response, over connections that break at random; go on after the last event."""
        seen = _Response()
        while seen.status is None:
            patience = self._rng.choice((2, 5, 20, 1_000))
            try:
                async for event in self._response_events(seen, key, message):
                    seen.take(event)
                    patience -= 1
                    if patience == 0 or seen.status is not None:
                        break
                else:
                    await self._pause()
            except (httpx2.TransportError, httpx2.SSEError) as error:
                self._acknowledge(_RESPONSES, key, error=f"{type(error).__name__}: {error}")
                await self._pause()
        assert seen.id is not None
        return DoorReading(
            0.0, "openai-stream", key, _run_of(seen.id), seen.status, "".join(seen.done.values()), seen.twice
        )

    async def _response_events(self, seen: _Response, key: str, message: str) -> AsyncGenerator[Json]:
        url = self._rng.choice(self._urls)
        if seen.id is None:
            body = {**self._response(key, message), "stream": True}
            request = self._http.build_request(
                "POST", f"{url}{_RESPONSES}", json=body, headers={"Idempotency-Key": key}
            )
        else:
            params = {"stream": "true", "starting_after": str(seen.number)}
            request = self._http.build_request("GET", f"{url}{_RESPONSES}/{seen.id}", params=params)
        request.extensions["timeout"]["read"] = _SILENCE_S
        answer = await self._http.send(request, stream=True)
        try:
            if answer.status_code != 200:
                await answer.aread()
                self._refuse(answer, key)
                return
            self._acknowledge(_RESPONSES, key, status=200)
            async for event in httpx2.EventSource(answer):
                if event.data != "[DONE]":
                    yield json.loads(event.data)
        finally:
            await answer.aclose()

    async def _await_response(self, key: str, message: str) -> DoorReading:
        """Ask for a response whole, and again with the same id until it is there."""
        response = await self._until_answered(
            _RESPONSES, self._response(key, message), {"Idempotency-Key": key}, key, lambda it: _run_of(it["id"])
        )
        while response["status"] in {"queued", "in_progress"}:
            await self._pause()
            response = await self._until_answered(
                _RESPONSES, self._response(key, message), {"Idempotency-Key": key}, key, lambda it: _run_of(it["id"])
            )
        texts = [part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"]]
        return DoorReading(0.0, "openai-wait", key, _run_of(response["id"]), response["status"], "".join(texts))

    async def _follow_task(self, key: str, message: str) -> DoorReading:
        """Call an agent's tool as a task, and look at the task until it ends."""
        arguments = {"message": message, "request_id": key}
        name = f"ask_{self._agent}"
        made = await self._mcp("tools/call", {"name": name, "arguments": arguments}, name, key)
        task_id: str = made["taskId"]
        while (task := await self._mcp("tasks/get", {"taskId": task_id}, task_id, key))["status"] == "working":
            await self._pause()
        text = task["result"]["structuredContent"]["text"] if task["status"] == "completed" else None
        failed = task["status"] == "completed" and task["result"].get("isError")
        return DoorReading(0.0, "mcp-task", key, task_id, "failed" if failed else task["status"], text or "")

    async def _mcp(self, method: str, params: Json, name: str, key: str) -> Json:
        meta = {
            "io.modelcontextprotocol/protocolVersion": _MCP,
            "io.modelcontextprotocol/clientCapabilities": _TASKS,
        }
        headers = {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": _MCP,
            "mcp-method": method,
            "mcp-name": name,
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}

        def run_of(message: Json) -> str | None:
            return message.get("result", {}).get("taskId")

        message = await self._until_answered("/mcp", body, headers, key, run_of)
        return message["result"]

    def _response(self, key: str, message: str) -> Json:
        return {"model": self._agent, "input": message, "metadata": {"key": key}}

    async def _until_answered(
        self, path: str, body: Json, headers: Json, key: str, run_of: Callable[[Json], str | None]
    ) -> Json:
        """Send a request, with the same id, until it is answered.

        Raises:
            DoorRefused: A repetition would not change the answer.
        """
        while True:
            try:
                url = self._rng.choice(self._urls)
                answer = await self._http.post(f"{url}{path}", json=body, headers=headers)
            except httpx2.TransportError as error:
                self._acknowledge(path, key, error=f"{type(error).__name__}: {error}")
            else:
                given = answer.json() if answer.is_success else {}
                # An outage within a JSON-RPC response, or a result of a tool that reports one.
                is_away = _is_away(given)
                if answer.is_success and not is_away:
                    self._acknowledge(path, key, status=answer.status_code, run=run_of(given))
                    return given
                if not is_away:
                    self._refuse(answer, key)
            await self._pause()

    def _refuse(self, answer: httpx2.Response, key: str) -> None:
        """Record an answer without success.

        Raises:
            DoorRefused: A repetition would not change it.
        """
        path = answer.request.url.path
        self._acknowledge(path, key, status=answer.status_code)
        if answer.status_code in _REFUSED and answer.status_code not in _PASSING:
            raise DoorRefused(f"{path} was answered with {answer.status_code}: {answer.text[:500]}")

    async def _pause(self) -> None:
        await asyncio.sleep(self._rng.uniform(*_PAUSE_S))

    def _acknowledge(
        self, path: str, key: str, *, status: int | None = None, run: str | None = None, error: str | None = None
    ) -> None:
        self._record("ack", asdict(Ack(0.0, path, key, status, run=run, error=error)))

    def _record(self, what: str, fields: Json) -> None:
        del fields["at"]
        self._recorder.write(what, **fields)


def _run_of(response_id: str) -> str:
    return f"run_{response_id.removeprefix('resp_')}"


def _is_away(message: Json) -> bool:
    error = message.get("error")
    said = error.get("data") if isinstance(error, dict) else None
    if said is None and isinstance(result := message.get("result"), dict) and result.get("isError"):
        said = result.get("structuredContent")
    return isinstance(said, dict) and (
        said.get("status") == 503 or said.get("code") in {"unavailable", "outcome_unknown"}
    )
