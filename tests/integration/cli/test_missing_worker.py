"""A fleet without a worker: a command that waits for a run reports it once."""

import asyncio
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response

from nova_workers.contracts.events import StreamEnd, StreamStart
from tests.support.processes.command_line import Nova
from tests.support.servers.api_stub import all_frames, api_stub, run_view, says

LACKS = "no worker is alive for the queue 'interactive': start one with `nova worker`"
ENDS = [
    StreamStart(run_id="run_1", thread_id="thr_1", attempt=1, agent_id="nova"),
    StreamEnd(run_id="run_1", final=True, status="succeeded", text="Done."),
]


@pytest.mark.parametrize("option", [None, "--wait", "--json"])
async def test_a_waiting_command_reports_once_that_no_worker_is_alive(tmp_path: Path, option: str | None) -> None:
    async with api_stub() as server:
        noted = asyncio.Event()

        async def events(_: Request) -> Response:
            await noted.wait()
            return Response("".join(all_frames(ENDS)), media_type="text/event-stream")

        async def result(request: Request) -> Response:
            await noted.wait()
            return await says(run_view(status="succeeded", text="Done."))(request)

        server.on("POST", "/v1/runs", says(run_view(), 202))
        server.on("GET", "/v1/runs/run_1", says(run_view(waiting_for=LACKS)))
        server.on("GET", "/v1/runs/run_1/events", events)
        server.on("GET", "/v1/runs/run_1/wait", result)
        nova = Nova({"NOVA_HOME": str(tmp_path), "NOVA_API_URL": server.url, "NOVA_API_KEY": "k"})
        with nova.child("send", "hi", *([] if option is None else [option])) as child:
            await asyncio.to_thread(child.notes, LACKS)
            noted.set()
            done = await asyncio.to_thread(child.done)
    assert done.code == 0
    assert (done.out + done.err).count(LACKS) == 1
