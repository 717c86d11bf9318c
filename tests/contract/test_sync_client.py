"""The sync client is generated: it is up to date, and has what the async one has."""

from __future__ import annotations

import runpy
import subprocess
import sys
from typing import Any

import pytest

from nova_workers.client import NovaClient, SyncNovaClient
from tests.support.data.documents import ROOT

_SCRIPT = ROOT / "deploy" / "environment" / "sync_client.py"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(_SCRIPT))


def test_the_sync_client_is_up_to_date() -> None:
    done = subprocess.run([sys.executable, _SCRIPT, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_sync_client_has_every_method_of_the_async_one() -> None:
    async_one, sync_one = NovaClient("http://127.0.0.1:1", None), SyncNovaClient("http://127.0.0.1:1", None)
    resources = [name for name in vars(async_one) if not name.startswith("_")]
    assert resources == [name for name in vars(sync_one) if not name.startswith("_")]
    for name in resources:
        assert _methods(getattr(async_one, name)) == _methods(getattr(sync_one, name))


def _methods(resource: object) -> set[str]:
    return {name for name in dir(type(resource)) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("source", "twin"),
    [
        (
            "async def get(self) -> Run:\n    return await self.read()\n",
            "def get(self) -> Run:\n    return self.read()\n",
        ),
        ("async with aclosing(feed()) as feed:\n    pass\n", "with closing(feed()) as feed:\n    pass\n"),
        ("from nova_workers.client.transport import T\n", "from nova_workers.client.sync.transport import T\n"),
        ("from nova_workers.client.problems import E\n", "from nova_workers.client.problems import E\n"),
        ("async for x in [\n    await y]:\n    pass\n", "for x in [\n    y]:\n    pass\n"),
        ('"""Say `await nova.runs` and wait."""\n', '"""Say `nova.runs` and wait."""\n'),
        ('url = "async/await"\n', 'url = "async/await"\n'),
    ],
)
def test_async_code_has_a_sync_twin(script: dict[str, Any], source: str, twin: str) -> None:
    assert script["sync_source"](source, "x.py").partition("\n")[2] == twin
