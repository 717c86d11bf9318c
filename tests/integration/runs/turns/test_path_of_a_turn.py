"""How many functions and files of ours a streamed request passes: upper bounds, so that layers do not pile up again.

A frame is a call of a function of ours that waits for the call below it. To follow a request through the code means to
read each of them, and each frame between the SDK and the publisher costs CPU time for every token.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

import nova_workers
from api.app import build_app
from nova_workers.contracts.runs import Doorbell
from nova_workers.domain.keys.sql.keys import create_key
from nova_workers.domain.streams.rules.publisher import RunEvents
from nova_workers.engines.anthropic import AnthropicEngine
from tests.support.harness.workers import Harness
from tests.support.servers.asgi import serving
from tests.support.servers.model_server import Part, Stream, model_server

MOST_FRAMES_DOWN = 9
"""From `RunExecutor.answer` to the HTTP request of the engine, both ends of ours included."""
MOST_FRAMES_BACK = 3
"""From where the engine reads the SDK's stream to `RunEvents.emit`; one more where secrets are removed."""
MOST_FILES = 32
"""Of the API, runs and streams, from the function of the route to the engine, and back to the client. Two record what
the model was asked."""
MOST_FRAMES = 10
"""Of all of ours, to the statement that accepts the message, to the engine, and to the client."""

_ROOT = f"{Path(nova_workers.__file__).parents[1]}/"
_OURS = (f"{_ROOT}nova_workers/", f"{_ROOT}api/")
_ON_THE_PATH = ("api/", "nova_workers/domain/runs/", "nova_workers/domain/streams/")
_ENCLOSING = ("api/boundary.py", "api/direct_route.py", "api/guard/")
"""They enclose every request alike, and are executed again whenever its coroutine is."""
_ROUTE = "api/routes/runs/submissions.py:create_run_and_stream"
_POINTS = (
    "nova_workers/ledger/connections.py:BoundConnection.fetchrow",
    "nova_workers/engines/scripted/engine.py:ScriptedEngine.run",
    "api/streaming/sse.py:StreamClient.on_events",
)
_SEND = httpx2.AsyncClient.send.__code__
_EMIT = RunEvents.emit.__code__


class Profile:
    """What the loop's thread executes within `watching`: a turn."""

    def __init__(self) -> None:
        self.down: list[str] = []
        self.back: list[str] = []
        self._at_request: set[int] = set()

    @contextmanager
    def watching(self) -> Generator[None]:
        sys.setprofile(self._on_event)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _on_event(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        if code is _SEND and not self.down:
            frames = _ours(frame)
            self._at_request = {id(each) for each in frames}
            self.down = [_name(each) for each in frames]
        elif code is _EMIT and frame.f_locals["event"].type == "token" and not self.back:
            self.back = [_name(each) for each in _ours(frame) if id(each) not in self._at_request]


class RequestProfile(Profile):
    """What the loop's thread executes within `watching`, from a route's function on.

    Attributes:
        files: The functions of each file of the path, in the order in which they were called first.
        elsewhere: Other files of ours.
        stacks: By each of `_POINTS`, the functions of ours that wait when it is called first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, list[str]] = {}
        self.elsewhere: set[str] = set()
        self.stacks: dict[str, list[str]] = {}
        self._has_begun = False

    def _on_event(self, frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event != "call" or not name.startswith(_OURS):
            return
        self._has_begun = self._has_begun or _name(frame) == _ROUTE
        if not self._has_begun:
            return
        if (point := _name(frame)) in _POINTS and point not in self.stacks:
            stack = [_name(each) for each in _ours(frame)]
            self.stacks[point] = stack[stack.index(_ROUTE) if _ROUTE in stack else 0 :]
        file = name.removeprefix(_ROOT)
        if not _is_on_the_path(file):
            self.elsewhere.add(file)
            return
        functions = self.files.setdefault(file, [])
        if frame.f_code.co_qualname not in functions:
            functions.append(frame.f_code.co_qualname)


def _is_on_the_path(name: str) -> bool:
    return name.startswith(_ON_THE_PATH) and not name.startswith(_ENCLOSING)


def _ours(frame: FrameType | None) -> list[FrameType]:
    frames: list[FrameType] = []
    while frame is not None:
        if frame.f_code.co_filename.startswith(_OURS):
            frames.append(frame)
        frame = frame.f_back
    return frames[::-1]


def _name(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename.removeprefix(_ROOT)}:{frame.f_code.co_qualname}"


@pytest.mark.parametrize(("capabilities", "more"), [({}, 0), ({"secrets": {}}, 1)], ids=["plain", "with secrets"])
async def test_a_streamed_turn_passes_few_frames_of_ours(
    harness: Harness, capabilities: dict[str, Any], more: int
) -> None:
    profile = Profile()
    async with model_server() as server:
        server.reply(Stream((Part("text", ["Hello ", "you"]),)))
        engine = AnthropicEngine(api_key="k", base_url=server.url)
        harness.engines["anthropic"] = engine
        await harness.add_agent("short", {"name": "Short", "engine": "anthropic", "capabilities": capabilities})
        worker = harness.worker()
        await harness.submit("first", agent_id="short")
        await harness.settle(worker)
        accepted = await harness.submit("again", agent_id="short")
        with profile.watching():
            await harness.settle(worker)
        await engine.close()
    assert await harness.status(accepted.run_id) == "succeeded"
    assert profile.down[0] == "nova_workers/domain/runs/rules/executor.py:RunExecutor.answer"
    assert profile.back[-1] == "nova_workers/domain/streams/rules/publisher.py:RunEvents.emit"
    assert len(profile.down) <= MOST_FRAMES_DOWN, profile.down
    assert len(profile.back) <= MOST_FRAMES_BACK + more, profile.back


async def test_a_streamed_request_passes_few_files_and_frames_of_ours(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.app.rehearse_messages", _no_rehearsal)
    async with harness.database.connection() as connection:
        key = await create_key(connection, harness.tenant_id, name="reader", scopes=["runs"])
    worker = harness.worker()
    worker.executor.slots = 10
    profile = RequestProfile()
    headers = {"Authorization": f"Bearer {key.key}"}
    async with (
        serving(build_app(harness.settings), patient=True) as url,
        httpx2.AsyncClient(base_url=url, headers=headers, timeout=30, verify=False) as client,
    ):
        await _stream(client, harness)
        with profile.watching():
            text = await _stream(client, harness)
    assert "event: token" in text
    print("\n".join(f"{file}: {', '.join(functions)}" for file, functions in profile.files.items()))
    print(f"{len(profile.files)} files, and {len(profile.elsewhere)} elsewhere")
    print("\n".join(f"{len(stack)} frames: {', '.join(stack)}" for stack in profile.stacks.values()))
    assert len(profile.files) <= MOST_FILES, list(profile.files)
    assert profile.stacks.keys() == set(_POINTS)
    assert all(len(stack) <= MOST_FRAMES for stack in profile.stacks.values()), profile.stacks


async def _no_rehearsal(_: FastAPI) -> None:
    """Stand in for the rehearsal of messages, which would be profiled too."""


async def _stream(client: httpx2.AsyncClient, harness: Harness) -> str:
    """Send a message, answer its doorbell with the harness's worker, and return the events."""
    (worker,) = harness.workers
    async with client.stream("POST", "/v1/runs/stream", json={"agent_id": "scripted", "message": "hello"}) as response:
        run_id = response.headers["nova-run-id"]
        thread_id = (await harness.run(run_id))["thread_id"]
        answering = worker.answer(Doorbell(run_id, thread_id, "interactive"))
        text = (await response.aread()).decode()
    async with asyncio.timeout(30):
        await answering
    return text
