"""The sync client: streams, threads, Ctrl-C, and its refusal to block an event loop."""

from __future__ import annotations

import asyncio
import builtins
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import assert_type

import pytest
from starlette.requests import Request
from starlette.responses import Response

from nova_workers.base.errors import NotFound
from nova_workers.client import NovaClient, Retry, SyncNovaClient, iterate, sync_iterate
from nova_workers.contracts.bodies import Page, Problem
from nova_workers.contracts.events import Event, EventCursor, StreamEnd, StreamStart, Token
from nova_workers.contracts.http.wire import RunView, StatelessRunCreate
from tests.support.servers.api_stub import ApiStub, all_frames, api_stub, run_view, says, streams
from tests.support.waiting import until

EVENTS = "/v1/runs/run_1/events"
PATIENT = Retry(attempts=4, base_s=0.001, max_s=0.002)
FRAMES = all_frames(
    [
        StreamStart(run_id="run_1", thread_id="thr_1", attempt=1, agent_id="nova"),
        Token(text="a"),
        Token(text="b"),
        StreamEnd(run_id="run_1", final=True, status="succeeded", text="ab"),
    ]
)


@pytest.fixture
async def server() -> AsyncIterator[ApiStub]:
    async with api_stub() as server:
        yield server


def open_client(server: ApiStub) -> SyncNovaClient:
    return SyncNovaClient(server.url, "nova_key", retry=PATIENT)


async def test_a_method_returns_what_the_async_one_returns(server: ApiStub) -> None:
    server.on("GET", "/v1/runs/run_1", says(run_view(status="running")))

    def read() -> RunView:
        with open_client(server) as nova:
            return assert_type(nova.runs.get("run_1"), RunView)

    async with NovaClient(server.url, "nova_key") as nova:
        assert await asyncio.to_thread(read) == assert_type(await nova.runs.get("run_1"), RunView)
    assert server.asked("GET", "/v1/runs/run_1")[0]["authorization"] == "Bearer nova_key"


async def test_an_error_of_the_api_is_raised(server: ApiStub) -> None:
    problem = Problem(title="Not Found", status=404, detail="There is no run 'run_1'.", code="not_found")
    server.on("GET", "/v1/runs/run_1", says(problem, 404))

    def read() -> None:
        with open_client(server) as nova:
            nova.runs.get("run_1")

    with pytest.raises(NotFound, match="There is no run 'run_1'"):
        await asyncio.to_thread(read)


async def test_a_request_whose_answer_was_lost_is_repeated_with_its_key(server: ApiStub) -> None:
    unavailable = Problem(title="Unavailable", status=503, detail="Try again.", code="unavailable")
    server.on("POST", "/v1/runs", says(unavailable, 503), says(run_view(), 202))

    def submit() -> None:
        with open_client(server) as nova:
            nova.runs.create(StatelessRunCreate(message="hi"))

    await asyncio.to_thread(submit)
    first, second = server.asked("POST", "/v1/runs")
    assert first["idempotency-key"] == second["idempotency-key"]


async def test_a_cut_stream_is_resumed_after_the_last_event(server: ApiStub) -> None:
    server.on("GET", EVENTS, streams(*FRAMES[:2], cut=True), streams(*FRAMES[2:]))

    def follow() -> list[str]:
        with open_client(server) as nova:
            events = assert_type(nova.runs.events("run_1"), Generator[tuple[EventCursor, Event]])
            return [str(cursor) for cursor, _ in events]

    assert await asyncio.to_thread(follow) == ["1-1", "1-2", "1-3", "1-4"]
    assert [headers.get("last-event-id") for headers in server.asked("GET", EVENTS)] == [None, "1-2"]


async def test_a_stream_that_is_left_early_closes_its_connection(server: ApiStub) -> None:
    left = asyncio.Event()

    async def handle(request: Request) -> Response:
        response = await streams(FRAMES[0], hang=True)(request)
        asyncio.get_running_loop().create_task(_on_leave(request, left))
        return response

    server.on("GET", EVENTS, handle)

    def follow() -> None:
        with open_client(server) as nova, closing(nova.runs.events("run_1")) as events:
            next(events)

    await asyncio.to_thread(follow)
    await asyncio.wait_for(left.wait(), 60)


async def _on_leave(request: Request, left: asyncio.Event) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    left.set()


async def test_several_threads_use_one_client(server: ApiStub) -> None:
    server.on("GET", "/v1/runs/run_1", says(run_view()))

    def read_all() -> list[RunView]:
        with open_client(server) as nova, ThreadPoolExecutor(8) as pool:
            return list(pool.map(nova.runs.get, ["run_1"] * 40))

    assert len(await asyncio.to_thread(read_all)) == 40


async def test_a_call_in_a_running_event_loop_is_refused_with_what_to_do(server: ApiStub) -> None:
    server.on("GET", "/v1/runs/run_1", says(run_view()))
    with open_client(server) as nova:
        with pytest.raises(RuntimeError, match=r"Use NovaClient .* asyncio\.to_thread"):
            nova.runs.get("run_1")
        with pytest.raises(RuntimeError, match="would block the event loop"):
            next(nova.runs.events("run_1"))
    assert server.requests == []


async def test_a_notebook_may_block_its_loop(monkeypatch: pytest.MonkeyPatch, server: ApiStub) -> None:
    port = server.url.rpartition(":")[2]
    monkeypatch.setattr(builtins, "get_ipython", lambda: None, raising=False)
    # The server of this test is in the loop that the client blocks, so the request can only end by its time limit.
    with SyncNovaClient(f"http://127.0.0.1:{port}", "nova_key", timeout_s=0.05) as nova:
        with pytest.raises(Exception, match="did not answer in time"):
            nova.runs.get("run_1")


async def test_ctrl_c_ends_a_script_that_follows_a_run(server: ApiStub) -> None:
    server.on("GET", EVENTS, streams(FRAMES[0], hang=True))
    script = f"""
from nova_workers.client import SyncNovaClient
try:
    with SyncNovaClient({server.url!r}, "nova_key") as nova:
        for cursor, _ in nova.runs.events("run_1"):
            print(cursor, flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert (await asyncio.wait_for(process.stdout.readline(), 60)).strip() == b"1-1"
    process.send_signal(signal.SIGINT)
    assert (await asyncio.wait_for(process.stdout.readline(), 60)).strip() == b"interrupted"
    assert await asyncio.wait_for(process.wait(), 60) == 0


async def test_all_pages_of_a_list_are_walked(server: ApiStub) -> None:
    pages = [
        says(Page[RunView](items=[run_view(id="run_1")], next_cursor="c1")),
        says(Page[RunView](items=[], next_cursor="c2")),
        says(Page[RunView](items=[run_view(id="run_2")], next_cursor=None)),
    ]
    asked: list[str] = []

    async def list_runs(request: Request) -> Response:
        asked.append(str(request.query_params))
        return await pages[(len(asked) - 1) % 3](request)

    server.on("GET", "/v1/runs", list_runs)

    def walk() -> list[str]:
        with open_client(server) as nova:
            return [assert_type(run, RunView).id for run in sync_iterate(nova.runs.list, status="failed")]

    async with NovaClient(server.url, "nova_key") as nova:
        found = [assert_type(run, RunView).id async for run in iterate(nova.runs.list, status="failed")]
    assert await asyncio.to_thread(walk) == found == ["run_1", "run_2"]
    assert asked == ["status=failed", "status=failed&cursor=c1", "status=failed&cursor=c2"] * 2


async def test_the_stream_of_a_new_message_is_one_request(server: ApiStub) -> None:
    async def handle(request: Request) -> Response:
        response = await streams(*FRAMES)(request)
        response.headers["Nova-Run-Id"] = "run_1"
        return response

    server.on("POST", "/v1/runs/stream", handle)

    def follow() -> list[Event]:
        with open_client(server) as nova:
            return [event for _, event in nova.runs.stream(StatelessRunCreate(message="hi"))]

    events = await asyncio.to_thread(follow)
    assert isinstance(events[-1], StreamEnd)
    await until(lambda: len(server.requests) == 1)
