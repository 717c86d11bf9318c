"""An engine's libraries are loaded by the first turn that needs them, beside the other turns."""

from __future__ import annotations

import asyncio
import gc
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from redis.asyncio import Redis

from nova_workers.base.clock import SystemClock
from nova_workers.base.config import Settings
from nova_workers.base.config.models import ModelProfile
from nova_workers.base.errors import ConfigurationError
from nova_workers.base.observability.metrics import Metrics
from nova_workers.bootstrap.deferred import DeferredEngine
from nova_workers.bootstrap.engine_parts import EngineParts
from nova_workers.bootstrap.engines import build_engines
from nova_workers.contracts.engine import EngineOptions, EngineResult
from nova_workers.engines.commands import ShellSettings
from tests.support.waiting import until

_MODULE = "engine_of_a_test"
_ECHO = "You said: Hello"
_BUILT = """
import time
from pathlib import Path
from nova_workers.engines.scripted import ScriptedEngine

def build(name, parts):
    here = Path(__file__).parent
    with open(here / "builds", "a") as builds:
        builds.write("x")
    while not (here / "go").exists():
        time.sleep(0.005)
    return ScriptedEngine(environment="development")
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of the module that builds an engine. It waits for a file `go` beside it."""
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / f"{_MODULE}.py"
    path.write_text(_BUILT)
    yield path
    sys.modules.pop(_MODULE, None)


def make_parts() -> EngineParts:
    return EngineParts(Settings(), Redis(), SystemClock(), Metrics(CollectorRegistry()), ShellSettings())


def write(path: Path, text: str) -> None:
    path.write_text(text)
    importlib.invalidate_caches()


async def turn(engine: DeferredEngine) -> EngineResult:
    return await engine.run("Hello", EngineOptions(), "sandbox")


async def test_turns_that_need_an_engine_wait_for_one_load_and_others_go_on(module: Path) -> None:
    frozen = gc.get_freeze_count()
    engine = DeferredEngine("mine", make_parts(), module=_MODULE)
    canceled, first, second = (asyncio.create_task(turn(engine)) for _ in range(3))
    # The loop goes on while the engine is being loaded.
    await until((module.parent / "builds").exists)
    canceled.cancel()
    (module.parent / "go").touch()
    results = await asyncio.gather(first, second, turn(engine))
    assert [result.text for result in results] == [_ECHO] * 3
    assert canceled.cancelled()
    assert (module.parent / "builds").read_text() == "x"
    assert gc.isenabled()
    assert gc.get_freeze_count() > frozen, "No later collection walks the loaded modules."
    await engine.close()


async def test_a_library_that_is_missing_is_named_and_looked_for_again(module: Path) -> None:
    write(module, "import library_that_is_missing\n")
    engine = DeferredEngine("mine", make_parts(), module=_MODULE)
    frozen = gc.get_freeze_count()
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=r"engine 'mine' cannot be imported: .*'library_that_is_missing'"):
            await turn(engine)
    assert "library_that_is_missing" in ((await engine.probe(timeout_s=1.0))[""] or "")
    assert gc.get_freeze_count() <= frozen, "Garbage is collected after a failure: each turn tries again."
    assert gc.isenabled()
    (module.parent / "library_that_is_missing.py").touch()
    write(module, _BUILT)
    (module.parent / "go").touch()
    assert (await turn(engine)).text == _ECHO
    sys.modules.pop("library_that_is_missing", None)


def build(settings: Settings) -> object:
    return build_engines(settings, Redis(), SystemClock(), Metrics(CollectorRegistry()), ShellSettings())


def test_a_worker_does_not_start_with_credentials_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    without_key = Settings().model_copy(update={"model": Settings().model.model_copy(update={"api_key": None})})
    build(without_key)
    monkeypatch.setenv("ANTHROPIC_PROFILE", "missing")
    with pytest.raises(ConfigurationError, match="cannot read its credentials"):
        build(without_key)


def test_a_worker_does_not_start_with_two_keys_of_one_name() -> None:
    twice = (ModelProfile.model_validate({"name": "a", "api_key": "k"}),) * 2
    settings = Settings().model_copy(update={"model": Settings().model.model_copy(update={"profiles": twice})})
    with pytest.raises(ConfigurationError, match=r"the same name: \['a', 'a'\]"):
        build(settings)
