"""`nova dev`: the fleet with a project whose code is edited."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import httpx2
import pytest

from nova_workers.cli.projects.starter import make_project
from nova_workers.devstack.home import read_state
from tests.support.processes.inspection import command_lines, descendants, wait_until_gone
from tests.support.waiting import until

pytestmark = pytest.mark.fleet

_LONGEST_S = 120.0
_LOADED = ("api.app:create_app", "worker.app:app")
_KEPT = ("postgres -D", "valkey-server", "beat.app:app beat")
_TOOLS = """from nova_workers.sdk import tool


@tool
def {name}(text: str) -> str:
    \"\"\"Return a text.

    Args:
        text: Any.
    \"\"\"
    return text
"""


@pytest.fixture
def folder() -> Generator[Path]:
    with tempfile.TemporaryDirectory(prefix="nova-dev-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def _pids(pid: int, *parts: str) -> set[int]:
    return {child for child, line in command_lines(descendants(pid)).items() if any(part in line for part in parts)}


async def test_code_that_changes_is_loaded_and_code_with_a_mistake_is_not(folder: Path) -> None:
    root, home, log = folder / "shop", folder / "home", folder / "log"
    make_project(root, "shop")
    tools = root / "tools" / "articles.py"
    tools.write_text(_TOOLS.format(name="first"))
    env = {**os.environ, "NOVA_HOME": str(home), "NOVA_DEFAULT_ENGINE": "scripted", "NOVA_CONSOLE__ENABLED": "false"}
    command = (sys.executable, "-m", "nova_workers.cli", "dev", "--dir", str(root), "--port", "0")
    with log.open("wb") as output:
        dev = await asyncio.create_subprocess_exec(*command, env=env, stdout=output, stderr=output, process_group=0)

    async def shows(text: str) -> None:
        await until(lambda: text in log.read_text() or dev.returncode is not None, text, timeout_s=_LONGEST_S)
        assert text in log.read_text(), log.read_text()

    try:
        await shows("3 made")
        state = read_state(home)
        assert state is not None
        headers = {"Authorization": f"Bearer {(home / 'api_key').read_text().strip()}"}
        async with httpx2.AsyncClient(base_url=state.api_url, headers=headers, timeout=_LONGEST_S) as client:
            assert '"first"' in (await client.get("/v1/capabilities")).text
            kept, loaded = _pids(dev.pid, *_KEPT), _pids(dev.pid, *_LOADED)

            tools.write_text(_TOOLS.format(name="second"))
            await shows("reloaded")
            listed = (await client.get("/v1/capabilities")).text
            assert ('"second"' in listed, '"first"' in listed) == (True, False)
            assert kept <= _pids(dev.pid, *_KEPT)
            anew = _pids(dev.pid, *_LOADED)
            assert (len(anew), anew & loaded) == (len(loaded), set())

            tools.write_text("def broken(:\n")
            await shows("project: tools/articles.py:1: the module 'tools.articles' cannot be imported: SyntaxError")
            assert (await client.get("/v1/capabilities")).text == listed
            assert _pids(dev.pid, *_LOADED) == anew

        everyone = descendants(dev.pid)
        dev.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(dev.wait(), _LONGEST_S) == 0, log.read_text()
        assert wait_until_gone(everyone, _LONGEST_S) == set(), log.read_text()
    finally:
        if dev.returncode is None:
            dev.kill()
        await dev.wait()
