"""Ctrl-C while the API hangs, or between two requests."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response

from nova_workers.cli.command import open_session
from nova_workers.cli.talk.follow import Interrupt
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.events import StreamEnd, StreamStart, Token
from tests.support.processes.command_line import Child, Done, Nova
from tests.support.servers.api_stub import ApiStub, all_frames, api_stub, run_view, says, streams

START = StreamStart(run_id="run_1", thread_id="thr_1", attempt=1, agent_id="nova")
CANCELED = StreamEnd(run_id="run_1", final=True, status="canceled")


@pytest.fixture
async def server() -> AsyncIterator[ApiStub]:
    async with api_stub() as server:
        server.on("POST", "/v1/runs", says(run_view(), 202))
        yield server


@pytest.fixture
def nova(server: ApiStub, tmp_path: Path) -> Nova:
    return Nova({"NOVA_HOME": str(tmp_path), "NOVA_API_URL": server.url, "NOVA_API_KEY": "k"})


async def _hang(_: Request) -> Response:
    await asyncio.Event().wait()
    raise AssertionError


async def _reads(child: Child, text: str) -> None:
    await asyncio.to_thread(child.reads, text)


async def _done(child: Child) -> Done:
    return await asyncio.to_thread(child.done)


async def test_a_second_ctrl_c_exits_although_the_cancel_hangs(server: ApiStub, nova: Nova) -> None:
    server.on("GET", "/v1/runs/run_1/events", streams(*all_frames([START, Token(text="so far")]), hang=True))
    server.on("POST", "/v1/runs/run_1/cancel", _hang)
    with nova.child("send", "hi") as child:
        await _reads(child, "so far")
        child.interrupt()
        await server.until_asked("POST", "/v1/runs/run_1/cancel")
        child.interrupt()
        done = await _done(child)
    assert done.code == 130
    assert "Traceback" not in done.err


async def test_a_ctrl_c_before_the_run_is_known_cancels_it_once_it_is(server: ApiStub, nova: Nova) -> None:
    pressed = asyncio.Event()

    async def slowly(_: Request) -> Response:
        await pressed.wait()
        return await says(run_view(), 202)(_)

    server.on("POST", "/v1/runs", slowly)
    server.on("POST", "/v1/runs/run_1/cancel", says(run_view(status="canceled")))
    server.on("GET", "/v1/runs/run_1/events", streams(*all_frames([START, CANCELED])))
    with nova.child("send", "hi") as child:
        await server.until_asked("POST", "/v1/runs")
        child.interrupt()
        pressed.set()
        done = await _done(child)
    assert done.code == 130
    assert len(server.asked("POST", "/v1/runs/run_1/cancel")) == 1


async def test_a_ctrl_c_is_applied_once_the_run_is_known(server: ApiStub) -> None:
    server.on("POST", "/v1/runs/run_1/cancel", says(run_view(status="canceled")))
    async with open_session(json_mode=True, api_url=server.url, api_key="k") as session:
        interrupt = Interrupt(session, None)
        interrupt.press()
        interrupt.arm("run_1")
        await interrupt.settle()
    assert len(server.asked("POST", "/v1/runs/run_1/cancel")) == 1


async def test_ctrl_c_ends_a_tail_and_not_its_run(server: ApiStub, nova: Nova) -> None:
    server.on("GET", "/v1/runs/run_1/events", streams(*all_frames([START, Token(text="so far")]), hang=True))
    with nova.child("runs", "tail", "run_1") as child:
        await _reads(child, "so far")
        child.interrupt()
        done = await _done(child)
    assert done.code == 130
    assert "Traceback" not in done.err
    assert server.asked("POST", "/v1/runs/run_1/cancel") == []


async def test_a_reader_that_closes_the_pipe_is_no_error(server: ApiStub, nova: Nova) -> None:
    server.on("GET", "/v1/runs", says(Page(items=[run_view(id=f"run_{at}" * 50) for at in range(1000)])))
    with nova.child("runs", "list") as child:
        child.stop_reading()
        done = await _done(child)
    assert "Traceback" not in done.err
    assert "BrokenPipe" not in done.err
