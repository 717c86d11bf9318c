"""The client is generated: it is up to date, names each operation of the API, and its halves have the same methods."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from nova_workers.client import NovaClient, SyncNovaClient
from tests.support.data.documents import ROOT

_ENVIRONMENT = ROOT / "deploy" / "environment"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(_ENVIRONMENT / "write_client.py"))


def test_both_halves_are_what_the_template_and_the_document_give(
    script: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert script["main"](["--check"]) == 0, capsys.readouterr().err


def test_a_template_that_does_not_name_each_operation_once_is_refused(script: dict[str, Any], tmp_path: Path) -> None:
    text = (_ENVIRONMENT / "client.toml").read_text("utf-8")
    (wrong := tmp_path / "client.toml").write_text(text.replace('"get_note"', '"get_task"').replace('"get_run"', '"x"'))
    with pytest.raises(ValueError, match=re.escape("['get_note', 'get_run', 'get_task', 'x']")):
        script["call_sources"](wrong)


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
