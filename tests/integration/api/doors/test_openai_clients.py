"""Clients of OpenAI's API that bring hundreds of packages, and the contract's own suite, where they are installed."""

from __future__ import annotations

import asyncio
import json
import os
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Final

import pytest

from nova_workers.base.stopping import stop_tasks
from nova_workers.contracts.waits import CallClientTool
from nova_workers.domain.waits.sql.suspend import NewWait
from tests.integration.api.conftest import Api
from tests.integration.api.doors import openai_clients
from tests.integration.api.manual_worker import ManualWorker
from tests.support.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

_PYTHON: Final = os.environ.get("OPENAI_CLIENTS_PYTHON")
"""A Python with the packages `litellm`, `openai-agents` and `langchain-openai`: 500 MB."""
_SUITE: Final = os.environ.get("OPEN_RESPONSES_SUITE")
"""A checkout of the repository `openresponses/openresponses`, in which `npm install bun zod@3` was run."""

_QUEUED: Final = """
SELECT to_jsonb(r) FROM runs r WHERE tenant_id = :tenant_id AND status = 'queued' ORDER BY id LIMIT 1
"""


async def play(api: Api, worker: ManualWorker) -> None:
    """Execute the tenant's runs: one with a tool of its caller calls it first."""
    while True:
        run = await until(lambda: api.fetchval(_QUEUED, tenant_id=api.tenant.id), timeout_s=600)
        assert run is not None
        turn = await worker.claim(run["thread_id"])
        tools = (run["options"] or {}).get("client_tools", [])
        if run["attempt"] == 0 and tools:
            call = CallClientTool(tool_name=tools[0]["name"], params={"location": "Rome"})
            await turn.suspend("", NewWait(f"toolu_{run['id'][4:]}", call))
            continue
        turn.step, turn.seq = (1, 3) if tools else (0, 1)
        await turn.finish("It is sunny in Rome." if tools else "Hello.")


async def run_beside(api: Api, worker: ManualWorker, *command: str, cwd: Path) -> tuple[int, str]:
    """Run a program while the tenant's runs are executed, and return its exit code and output."""
    playing = asyncio.create_task(play(api, worker))
    environment = {**os.environ, "NOVA_KEY": api.tenant.key, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    program = await asyncio.create_subprocess_exec(*command, cwd=cwd, env=environment, stdout=PIPE, stderr=PIPE)
    try:
        output, errors = await program.communicate()
    finally:
        await stop_tasks([playing])
    assert program.returncode is not None
    return program.returncode, f"{output.decode()}\n{errors.decode()}" if program.returncode else output.decode()


@pytest.mark.skipif(_PYTHON is None, reason="OPENAI_CLIENTS_PYTHON names no Python with the clients")
async def test_litellm_openai_agents_and_langchain_have_the_fleet_as_model(
    api: Api, worker: ManualWorker, tmp_path: Path
) -> None:
    program = str(Path(openai_clients.__file__))
    code, output = await run_beside(api, worker, str(_PYTHON), program, f"{api.url}/openai/v1", cwd=tmp_path)
    assert code == 0, output


@pytest.mark.skipif(_SUITE is None, reason="OPEN_RESPONSES_SUITE names no checkout of the suite")
async def test_the_suite_of_open_responses_passes_but_for_the_websocket(api: Api, worker: ManualWorker) -> None:
    folder = Path(str(_SUITE))
    command = ["node_modules/.bin/bun", "run", "bin/compliance-test.ts", "--json", "--model", "nova"]
    to = ["--base-url", f"{api.url}/openai/v1", "--api-key", api.tenant.key]
    _, output = await run_beside(api, worker, *command, *to, cwd=folder)
    results = json.loads(output[output.index("{") :].rpartition("}")[0] + "}")["results"]
    failed = {result["id"] for result in results if result["status"] == "failed"}
    assert {name for name in failed if not name.startswith("websocket-")} == set(), output
    assert len(results) - len(failed) >= 10
