"""The client of AG-UI's own SDK, which checks each stream, against the door: one process of Node for all."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest

from nova_workers.contracts import events as live
from nova_workers.contracts.waits import AskUser, CallClientTool
from nova_workers.domain.waits.sql.suspend import NewWait
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import ManualWorker, Turn
from tests.requirements import proves
from tests.support.servers import aimock_server

_PROGRAM = Path(__file__).with_name("ag_ui_client.mjs")
_MODULES = Path(aimock_server.__file__).parent / "aimock" / "node_modules"
_NODE = shutil.which("node")

pytestmark = pytest.mark.skipif(
    _NODE is None or not (_MODULES / "@ag-ui" / "client").is_dir(),
    reason="@ag-ui/client is not installed; `make aimock` does it, where npm is",
)


async def _claimed(api: Api, worker: ManualWorker, program: asyncio.subprocess.Process, step: int = 0) -> Turn:
    """Wait until the program's next run has begun, and claim it."""
    assert program.stdout is not None
    line = await program.stdout.readline()
    assert line, "the program ended"
    assert orjson.loads(line) == {"begun": "1.0"}
    (run, *_) = (await api.http.get("/v1/runs", params={"limit": 1})).json()["items"]
    turn = await worker.claim(run["thread_id"])
    turn.step, turn.seq = step, 1 + 2 * step
    return turn


@proves("doors.ag-ui-answers")
async def test_the_sdks_client_takes_every_stream(api: Api, worker: ManualWorker) -> None:
    assert _NODE is not None
    url = f"{api.url}/ag-ui/nova"
    program = await asyncio.create_subprocess_exec(
        _NODE, _PROGRAM, _MODULES, url, api.tenant.key, stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(90):
            found = await _play(api, worker, program)
    finally:
        if program.returncode is None:
            program.kill()
        await program.wait()
    texts = [message.get("content") for message in found["messages"] if message["role"] in {"user", "assistant"}]
    assert texts == ["Weather?", "Looking.", "It rains.", "Clean up.", "Hm.", "Clean."]
    assert [message.get("content") for message in found["later"] if message["role"] != "tool"] == texts
    assert found["states"] == [{"plan": ["wash"]}, {"plan": ["wash"]}]
    assert (found["interrupt"]["reason"], found["interrupt"]["message"]) == ("input_required", "Which?")
    assert (found["refused"]["type"], found["refused"]["code"]) == ("RUN_ERROR", "not_found")


async def _play(api: Api, worker: ManualWorker, program: asyncio.subprocess.Process) -> Any:
    """Be the agent in each of the program's runs, and return what it prints in the end."""
    assert program.stdout is not None
    turn = await _claimed(api, worker, program)
    await turn.emit(live.Token(text="Look"))
    await turn.suspend("Looking.", NewWait("toolu_1", CallClientTool(tool_name="ask", params={})))
    await turn.emit(live.StreamEnd(run_id=turn.claim.run_id, final=False, status="waiting"))
    turn = await _claimed(api, worker, program, step=1)
    patch = {"plan": ["wash"]}
    where = f"/v1/threads/{turn.claim.thread_id}/state"
    assert (await api.http.patch(where, json={"patch": patch})).json()["version"] == 2
    await turn.emit(live.StateChange(version=2, patch=patch, tool_call_id="toolu_2"))
    await turn.finish("It rains.")
    turn = await _claimed(api, worker, program)
    await turn.suspend("Hm.", NewWait("toolu_1", AskUser(question="Which?", options=("a", "b"))))
    await turn.emit(live.StreamEnd(run_id=turn.claim.run_id, final=False, status="waiting"))
    turn = await _claimed(api, worker, program, step=1)
    await turn.finish("Clean.")
    assert orjson.loads(await program.stdout.readline()) == {"begun": "1.0"}
    return orjson.loads(await program.stdout.readline())
