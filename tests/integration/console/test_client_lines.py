"""Every line that the page Connect and docs/connect.md show, run against a real fleet by the program that it is for."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import claude_agent_sdk
import httpx2
import pytest
from acp import PROTOCOL_VERSION, spawn_agent_process, text_block
from acp.interfaces import Client as AcpClient
from mcp import StdioServerParameters
from mcp.client.client import Client as McpClient
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import TextContent

from api.doors.loading import DOORS
from nova_workers.console.client_lines import CLIENTS, KEY_PLACEHOLDER, Client, setup
from tests.integration.cli.editors.editor import TestEditor
from tests.requirements import proves
from tests.support.processes.fleet import Fleet
from tests.support.servers import aimock_server
from tests.support.servers.databases import own_database, own_valkey

pytestmark = [pytest.mark.fleet, pytest.mark.timeout(300)]

_QUESTION: Final = "What is a fence?"
_ANSWER: Final = f"You said: {_QUESTION}"
_CLAUDE: Final = Path(claude_agent_sdk.__file__).parent / "_bundled"
_MODULES: Final = Path(aimock_server.__file__).parent / "aimock" / "node_modules"
_VARIABLE: Final = re.compile(r"\$\{(?:env:NOVA_API_KEY|NOVA_API_KEY|input:nova-key)\}")


@dataclass(frozen=True)
class Place:
    """A fleet with all doors, and a person's machine.

    Attributes:
        env: Of the person's programs.
    """

    fleet: Fleet
    folder: Path
    env: Mapping[str, str]

    def run(self, *command: str, stdin: str = "", **more: str) -> str:
        """Run a program to its end, and return what it prints."""
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={**self.env, **more},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def shell(self, lines: str) -> str:
        """Run lines as a terminal does."""
        return self.run("bash", "-euc", lines)


@pytest.fixture(scope="module")
def fleet(postgres_url_admin: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """API and worker, with all doors."""
    home = tmp_path_factory.mktemp("fleet")
    with own_valkey() as redis_url, asyncio.Runner() as runner:
        stack = AsyncExitStack()
        env = {
            "NOVA_DATABASE_URL": runner.run(stack.enter_async_context(own_database(postgres_url_admin))),
            "NOVA_REDIS_URL": redis_url,
            "NOVA_HOME": str(home),
            "NOVA_DOORS": json.dumps(list(DOORS)),
        }
        try:
            yield runner.run(stack.enter_async_context(Fleet(env, log_dir=home / "logs")))
        finally:
            runner.run(stack.aclose())


@pytest.fixture
def place(fleet: Fleet, tmp_path: Path) -> Place:
    """A machine with `nova`, `python` and Claude Code on its PATH."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, arguments in (("nova", "-m nova_workers.cli"), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        (programs / name).chmod(0o755)
    env = {
        "PATH": f"{programs}:{_CLAUDE}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "NOVA_HOME": str(tmp_path / "nova"),
        "NOVA_API_KEY": fleet.api_key,
        "NO_COLOR": "1",
    }
    return Place(fleet, tmp_path, env)


def _curl(place: Place, text: str) -> None:
    said = re.findall(r'"text":"((?:[^"\\]|\\.)*)"', place.shell(text))
    assert _ANSWER in "".join(said)


def _nova(place: Place, text: str) -> None:
    assert _ANSWER in place.shell(text)


def _python(place: Place, text: str) -> None:
    assert place.run("python", "-c", text) == f"{_ANSWER}\n"


def _openai_environment(place: Place, text: str) -> None:
    program = (
        "import openai; print(openai.OpenAI().chat.completions.create(model='nova',"
        f" messages=[{{'role': 'user', 'content': {_QUESTION!r}}}]).choices[0].message.content)"
    )
    assert place.shell(f'{text}\npython -c "{program}"') == f"{_ANSWER}\n"


def _claude_code(place: Place, text: str) -> None:
    if text.startswith("claude "):
        assert "Added" in place.shell(text)
        kept = json.loads((place.folder / ".claude.json").read_text())
        text = json.dumps({"mcpServers": kept["mcpServers"]})
    _mcp_over_http(place, json.loads(text)["mcpServers"]["nova"])


def _cursor(place: Place, text: str) -> None:
    _mcp_over_http(place, json.loads(text)["mcpServers"]["nova"])


def _vscode(place: Place, text: str) -> None:
    settings = json.loads(text)
    assert [each["id"] for each in settings["inputs"]] == ["nova-key"]
    _mcp_over_http(place, settings["servers"]["nova"])


def _mcp_over_http(place: Place, server: dict[str, Any]) -> None:
    filled = {name: _VARIABLE.sub(place.fleet.api_key, value) for name, value in server["headers"].items()}

    async def use() -> None:
        async with httpx2.AsyncClient(headers=filled, timeout=120) as http:
            await _ask_by_mcp(McpClient(streamable_http_client(server["url"], http_client=http)))

    asyncio.run(use())


def _mcp(place: Place, text: str) -> None:
    server = json.loads(text.replace(KEY_PLACEHOLDER, place.fleet.api_key))["mcpServers"]["nova"]
    program = StdioServerParameters(
        command=str(place.folder / "bin" / server["command"]),
        args=server["args"],
        env={**_without_fleet(place), **server["env"]},
    )

    async def use() -> None:
        with (place.folder / "mcp.log").open("w") as errors:
            await _ask_by_mcp(McpClient(stdio_client(program, errors)))

    asyncio.run(use())


async def _ask_by_mcp(client: McpClient) -> None:
    async with client:
        result = await client.call_tool("ask_nova", {"message": _QUESTION})
    assert next(block.text for block in result.content if isinstance(block, TextContent)) == _ANSWER


def _editor(place: Place, text: str) -> None:
    (settings,) = json.loads(text.replace(KEY_PLACEHOLDER, place.fleet.api_key))["agent_servers"].values()

    async def use() -> None:
        editor = TestEditor()
        command = str(place.folder / "bin" / settings["command"])
        env = {**_without_fleet(place), **settings["env"]}
        async with spawn_agent_process(cast("AcpClient", editor), command, *settings["args"], env=env) as (agent, _):
            await agent.initialize(protocol_version=PROTOCOL_VERSION)
            session = await agent.new_session(cwd=str(place.folder), mcp_servers=[])
            await agent.prompt(session.session_id, [text_block(_QUESTION)])
        assert editor.text(session.session_id) == _ANSWER

    asyncio.run(use())


def _without_fleet(place: Place) -> dict[str, str]:
    return {name: value for name, value in place.env.items() if name != "NOVA_API_KEY"}


def _ag_ui(place: Place, text: str) -> None:
    node = shutil.which("node")
    if node is None or not (_MODULES / "@ag-ui" / "client").is_dir():
        pytest.skip("@ag-ui/client is not installed; `make aimock` does it, where npm is")
    (place.folder / "node_modules").symlink_to(_MODULES)
    (place.folder / "nova.mjs").write_text(text)
    (place.folder / "front.mjs").write_text(
        'import { nova } from "./nova.mjs";\n'
        f"nova.addMessage({{ id: crypto.randomUUID(), role: 'user', content: {json.dumps(_QUESTION)} }});\n"
        "await nova.runAgent();\n"
        "console.log(nova.messages.at(-1).content);\n"
    )
    assert place.run(node, "front.mjs") == f"{_ANSWER}\n"


_RUN: Final[Mapping[str, Callable[[Place, str], None]]] = {
    "curl": _curl,
    "nova": _nova,
    "python": _python,
    "openai": _python,
    "openai-environment": _openai_environment,
    "claude-code": _claude_code,
    "cursor": _cursor,
    "vscode": _vscode,
    "mcp": _mcp,
    "zed": _editor,
    "jetbrains": _editor,
    "ag-ui": _ag_ui,
    "a2a": _python,
    "langgraph": _python,
}


@proves("doors.connect")
@pytest.mark.parametrize(
    "client",
    [
        # The same program with the same settings as another: `nova acp` of zed.
        pytest.param(client, id=client.key, marks=pytest.mark.long if client.key == "jetbrains" else ())
        for client in CLIENTS
    ],
)
def test_the_lines_of_a_client_get_an_answer_of_the_agent(client: Client, place: Place) -> None:
    for lines in client.lines:
        _RUN[client.key](place, lines.text(place.fleet.api_url, "nova"))


def test_address_and_key_are_read_into_the_environment(place: Place) -> None:
    lines = f"unset NOVA_API_KEY\n{setup(place.fleet.api_url)}nova agents list"
    assert "nova" in place.run("bash", "-euc", lines, stdin=f"{place.fleet.api_key}\n")
