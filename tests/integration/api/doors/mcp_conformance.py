"""Runs the protocol's own conformance suite (`@modelcontextprotocol/conformance` of npm) against the door.

The suite sends no key, and calls tools that it expects by name. In front of the door stands a translator of these two
things and nothing else: it adds the key, and replaces the name and the arguments of a fixture by those of an agent's
tool.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx2
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nova_workers.contracts import events as live
from nova_workers.contracts.engine import EngineError
from nova_workers.contracts.waits import AskUser
from nova_workers.domain.waits.sql.suspend import NewWait
from tests.integration.api.manual_worker import ManualWorker
from tests.support.waiting import until

FIXTURES: Final = (
    "confirm_delete",
    "failing_job",
    "multi_input",
    "protocol_error_job",
    "slow_compute",
    "test_error_handling",
    "test_input_required_result_capabilities",
    "test_input_required_result_elicitation",
    "test_input_required_result_multi_round",
    "test_input_required_result_request_state",
    "test_input_required_result_tampered_state",
    "test_simple_text",
)
"""Tools of the suite that an agent stands for: its message says which, with the arguments."""

SYNC: Final = "greet"
"""A tool of the suite that answers at once."""


def find_suite() -> Path | None:
    """Return the suite's program, if it is installed: on the path, or where MCP_CONFORMANCE says."""
    found = os.environ.get("MCP_CONFORMANCE") or shutil.which("conformance")
    return None if found is None else Path(found)


class SuiteFixtures:
    """An ASGI application before the door."""

    def __init__(self, app: ASGIApp, key: str, agent: str = "nova") -> None:
        """Take the API, the key of the suite's requests, and the agent behind its tools."""
        self._app = app
        self._key = key.encode()
        self._tool = f"ask_{agent}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = await _body(receive)
        headers = [
            (name, value) for name, value in scope["headers"] if name not in {b"authorization", b"content-length"}
        ]
        named = self._translated(body)
        if named is not None:
            body = named
            headers = [(name, self._header(value) if name == b"mcp-name" else value) for name, value in headers]
        headers += [(b"authorization", b"Bearer " + self._key), (b"content-length", str(len(body)).encode())]
        given = False

        async def replay() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app({**scope, "headers": headers}, replay, send)

    def _header(self, value: bytes) -> bytes:
        if (name := value.decode().strip()) in FIXTURES:
            return value.replace(name.encode(), self._tool.encode())
        return value.replace(SYNC.encode(), b"list_agents") if name == SYNC else value

    def _translated(self, body: bytes) -> bytes | None:
        try:
            message = json.loads(body)
        except ValueError:
            return None
        match message:
            case {"method": "tools/call", "params": {"name": str(name)}} if name in FIXTURES:
                told = json.dumps({"fixture": name, "arguments": message["params"].get("arguments") or {}})
                message["params"] |= {"name": self._tool, "arguments": {"message": told, "wait_s": 30}}
                return json.dumps(message).encode()
            case {"method": "tools/call", "params": {"name": "greet"}}:
                message["params"] |= {"name": "list_agents", "arguments": {}}
                return json.dumps(message).encode()
            case _:
                return None


async def play_fixtures(http: httpx2.AsyncClient, worker: ManualWorker) -> None:
    """Do what the suite's tools do, as a worker that plays all runs of a tenant."""
    async with asyncio.TaskGroup() as playing:
        seen: set[tuple[str, int]] = set()
        while True:
            for run in (await http.get("/v1/runs", params={"status": "queued"})).json()["items"]:
                if (run["id"], run["attempt"]) not in seen:
                    seen.add((run["id"], run["attempt"]))
                    playing.create_task(_play(http, worker, run))
            await asyncio.sleep(0.05)


async def _play(http: httpx2.AsyncClient, worker: ManualWorker, run: dict[str, Any]) -> None:
    told = json.loads(run["message"][0]["text"])
    turn = await worker.claim(run["thread_id"])
    rounds = 2 if told["fixture"] == "test_input_required_result_multi_round" else 1
    if run["attempt"] >= rounds:
        await turn.finish("Done as you said.")
        return
    match told["fixture"]:
        case str(name) if name == "confirm_delete" or name.startswith("test_input_required"):
            turn.step, turn.seq = run["attempt"], 1 + 2 * run["attempt"]
            await turn.suspend("", NewWait(f"call_{run['attempt']}", AskUser(question="Delete it?")))
            await turn.emit(live.Waiting(kind="user", question="Delete it?"))
        case "multi_input":
            waits = [NewWait(f"call_{at}", AskUser(question=f"Question {at}?")) for at in range(2)]
            await turn.suspend("", *waits)
        case "failing_job" | "test_error_handling":
            await turn.finish("", "failed", error=EngineError("model_error", "It failed.", retryable=False))
        case "protocol_error_job":
            await turn.finish("", "failed", error=EngineError("engine_error", "It broke.", retryable=False))
        case _:

            async def is_canceled() -> bool:
                return (await http.get(f"/v1/runs/{run['id']}")).json()["cancel_requested_at"] is not None

            try:
                await until(is_canceled, timeout_s=told["arguments"].get("seconds", 0))
            except AssertionError:
                await turn.finish("This is a simple text response for testing.")
            else:
                await turn.finish("", "canceled")


async def run_scenario(suite: Path, url: str, scenario: str, version: str, folder: Path) -> Mapping[str, str]:
    """Run a scenario for servers, and return the status of each check by its id."""
    return await _run(suite, folder, scenario, "server", "--url", f"{url}/mcp", "--spec-version", version, "--force")


async def run_client_scenario(suite: Path, scenario: str, folder: Path) -> Mapping[str, str]:
    """Run a scenario for clients with the one of workers, and return the status of each check by its id."""
    command = f"{sys.executable} -m tests.support.servers.mcp_conformance_client"
    return await _run(suite, folder, scenario, "client", "--command", command)


async def list_scenarios(suite: Path, side: str) -> set[str]:
    """Return the names of all scenarios for servers, or for clients."""
    process = await asyncio.create_subprocess_exec(str(suite), "list", f"--{side}", stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    return {line.split()[1] for line in output.decode().splitlines() if line.startswith("  - ")}


async def _run(suite: Path, folder: Path, scenario: str, *arguments: str) -> Mapping[str, str]:
    process = await asyncio.create_subprocess_exec(
        str(suite),
        *(*arguments, "--scenario", scenario, "-o", str(folder)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    reports = [*folder.rglob("checks.json")]  # noqa: ASYNC240 - a folder of two files
    assert reports, output.decode()
    checks: list[dict[str, Any]] = json.loads(reports[-1].read_bytes())
    found: dict[str, str] = {}
    for check in checks:
        # Of a check that was made several times, the worst counts.
        found[check["id"]] = max(found.get(check["id"], ""), check["status"], key=_rank)
        if check["status"] == "FAILURE":
            print(scenario, check["id"], check.get("errorMessage"))
    return found


def _rank(status: str) -> int:
    return ("FAILURE", "WARNING", "SUCCESS").index(status) * -1 if status in {"FAILURE", "WARNING", "SUCCESS"} else -3


async def _body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)
