"""The client for TypeScript, built as a release does and installed from its tarball, in Node against a real API."""

from __future__ import annotations

import asyncio
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import orjson
import pytest

from nova_workers.contracts import events as live
from nova_workers.contracts.bodies import Problem
from nova_workers.contracts.events import StreamEnd, StreamStart, Token
from nova_workers.contracts.waits import AskUser
from nova_workers.domain.waits.sql.suspend import NewWait
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import ManualWorker, Turn
from tests.requirements import proves
from tests.support.data.idle_api import idle_api
from tests.support.servers.api_stub import CHANGES, all_frames, api_stub, run_view, says, streams
from tests.support.servers.typescript_compiler import why_no_typescript
from tests.support.waiting import until

_PROGRAM = Path(__file__).with_name("typescript_program.mjs")
_NODE = shutil.which("node")
_SCRIPT = runpy.run_path(str(Path(__file__).parents[3] / "deploy" / "environment" / "typescript.py"))
_SOURCE: Path = _SCRIPT["SOURCE"]
_END = StreamEnd(run_id="run_1", final=True, status="succeeded", text="ab")
_FRAMES = all_frames(
    [
        StreamStart(run_id="run_1", thread_id="thr_1", attempt=1, agent_id="nova"),
        Token(text="a"),
        Token(text="b"),
        _END,
    ]
)
_BUSY = Problem(title="Unavailable", status=503, detail="Later.", code="unavailable")

pytestmark = pytest.mark.skipif(why_no_typescript() is not None, reason=str(why_no_typescript()))


def _install(folder: Path) -> Path:
    """Build the package, install it as npm does, and return a program that uses it."""
    tarball: Path = _SCRIPT["build"](idle_api().openapi(), "0.3.0rc1", folder)
    assert tarball.name == "nova-workers-0.3.0-rc.1.tgz"
    package = folder / "node_modules" / "nova-workers"
    package.mkdir(parents=True)
    subprocess.run(["tar", "-xzf", tarball, "-C", package, "--strip-components=1"], check=True)
    for name in ("eventsource-parser", "openapi-fetch", "openapi-typescript-helpers"):
        (folder / "node_modules" / name).symlink_to(_SOURCE / "node_modules" / name)
    return Path(shutil.copy(_PROGRAM, folder))


@proves("client.typescript")
async def test_a_program_in_node_asks_follows_and_answers(api: Api, worker: ManualWorker, tmp_path: Path) -> None:
    assert _NODE is not None
    program = await asyncio.to_thread(_install, tmp_path)
    async with api_stub() as stub:
        stub.on("GET", "/v1/runs/run_1/events", streams(*_FRAMES[:2], cut=True), streams(*_FRAMES[2:]))
        stub.on("GET", "/v1/events", streams(CHANGES[0], cut=True), streams(CHANGES[1]))
        stub.on("POST", "/v1/runs", says(_BUSY, 503), says(run_view(), 202))
        process = await asyncio.create_subprocess_exec(
            _NODE, program, api.url, api.tenant.key, stub.url, stdout=asyncio.subprocess.PIPE
        )
        try:
            async with asyncio.timeout(90):
                found = await _play(api, worker, process)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
        keys = [headers["idempotency-key"] for headers in stub.asked("POST", "/v1/runs")]
        changed = [headers.get("last-event-id") for headers in stub.asked("GET", "/v1/events")]
        resumed = [headers.get("last-event-id") for headers in stub.asked("GET", "/v1/runs/run_1/events")]
    assert (found["question"], found["answered"], found["text"]) == ("Where?", True, "It rains.")
    assert [name for name in found["events"] if name in {"stream_start", "token", "stream_end"}] == [
        "stream_start",
        "token",
        "stream_end",
    ]
    assert found["again"]
    assert "nova" in found["agents"]
    assert found["error"] == [True, "not_found", 404]
    assert found["pieces"] == [["1-1", "stream_start"], ["1-2", "a"], ["1-3", "b"], ["1-4", "ab"]]
    assert resumed == [None, "1-2"]
    assert found["changed"] == [["a-1-0-1", "ready"], ["a-2-1-2", "run_1"]]
    assert changed == [None, "a-1-0-1"]
    assert (found["sent"], keys[0]) == (run_view().id, keys[1])


async def _play(api: Api, worker: ManualWorker, process: asyncio.subprocess.Process) -> Any:
    """Be the agent in each of the program's runs, and return what it prints in the end."""
    assert process.stdout is not None
    turn = await _claimed(api, worker)
    await turn.suspend("Hm.", NewWait("toolu_1", AskUser(question="Where?")))
    await turn.emit(live.StreamEnd(run_id=turn.claim.run_id, final=False, status="waiting"))
    turn = await _claimed(api, worker)
    turn.step, turn.seq = 1, 3
    await turn.finish("It rains.")
    turn = await _claimed(api, worker)
    await turn.emit(live.Token(text="Still."))
    await turn.finish("Still.")
    return orjson.loads(await process.stdout.readline())


async def _claimed(api: Api, worker: ManualWorker) -> Turn:
    """Wait until the program's next run is queued, and claim it."""

    async def queued() -> list[dict[str, Any]]:
        return (await api.http.get("/v1/runs", params={"limit": 1, "status": "queued"})).json()["items"]

    found: list[dict[str, Any]] = await until(queued)
    return await worker.claim(found[0]["thread_id"])
