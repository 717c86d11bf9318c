"""How many functions and files of ours a streamed turn passes: upper bounds, so that layers do not pile up again.

A frame is a call of a function of ours that waits for the call below it. To follow a request through the code means to
read each of them, and each frame between the SDK and the publisher costs CPU time for every token.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import httpx2
import pytest

import nova_workers
from nova_workers.domain.streams.rules.publisher import RunEvents
from nova_workers.engines.anthropic import AnthropicEngine
from tests.support.harness.workers import Harness
from tests.support.servers.model_server import Part, Stream, model_server

MOST_FRAMES_DOWN = 9
"""From `RunExecutor.answer` to the HTTP request of the engine, both ends of ours included."""
MOST_FRAMES_BACK = 3
"""From where the engine reads the SDK's stream to `RunEvents.emit`; one more where secrets are removed."""
MOST_FILES = 50
"""Of runs, engines and streams: those whose code a turn without tools executes, which were 50 on 2026-11-27. Two of
them (the set-up of a turn's tools, the price list) are shared by the engines that ask a model over the wire, as are the
bounds on what a provider sends and on a conversation's images, and the form of a person's messages; one, the context
windows, is apart from the code that needs the provider's SDK."""

_OURS = f"{Path(nova_workers.__file__).parent}/"
_SEND = httpx2.AsyncClient.send.__code__
_EMIT = RunEvents.emit.__code__


class Profile:
    """What the loop's thread executes within `watching`."""

    def __init__(self) -> None:
        self.files: set[str] = set()
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
        if code.co_filename.startswith(_OURS):
            self.files.add(code.co_filename.removeprefix(_OURS))
        if code is _SEND and not self.down:
            frames = _ours(frame)
            self._at_request = {id(each) for each in frames}
            self.down = [_name(each) for each in frames]
        elif code is _EMIT and frame.f_locals["event"].type == "token" and not self.back:
            self.back = [_name(each) for each in _ours(frame) if id(each) not in self._at_request]


def _ours(frame: FrameType | None) -> list[FrameType]:
    frames: list[FrameType] = []
    while frame is not None:
        if frame.f_code.co_filename.startswith(_OURS):
            frames.append(frame)
        frame = frame.f_back
    return frames[::-1]


def _name(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename.removeprefix(_OURS)}:{frame.f_code.co_qualname}"


@pytest.mark.parametrize(("capabilities", "more"), [({}, 0), ({"secrets": {}}, 1)], ids=["plain", "with secrets"])
async def test_a_streamed_turn_passes_few_frames_and_files_of_ours(
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
    assert profile.down[0] == "domain/runs/rules/executor.py:RunExecutor.answer"
    assert profile.back[-1] == "domain/streams/rules/publisher.py:RunEvents.emit"
    assert len(profile.down) <= MOST_FRAMES_DOWN, profile.down
    assert len(profile.back) <= MOST_FRAMES_BACK + more, profile.back
    if not capabilities:
        files = sorted(name for name in profile.files if name.startswith(("runs/", "engines/", "streams/")))
        assert len(files) <= MOST_FILES, files
