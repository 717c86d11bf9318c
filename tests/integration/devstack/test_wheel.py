"""The wheel, installed beside a project whose own modules have the names that ours have in the repository."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from nova_workers.devstack.home import StackState, read_state
from tests.requirements import proves
from tests.support.processes.inspection import command_lines, descendants, wait_until_gone

pytestmark = pytest.mark.fleet

_ROOT = Path(__file__).resolve().parents[3]
_START_S = 120.0
_STOP_S = 60.0
_OURS = "raise RuntimeError('a process of the fleet imported the {name} of the project that it is installed beside')\n"


def _install_wheel(folder: Path) -> Path:
    """Build the wheel, and return a folder with what it installs."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)],
        cwd=_ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    installed = folder / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    return installed


def _project(folder: Path) -> Path:
    folder.mkdir()
    (folder / "api.py").write_text(_OURS.format(name="api"))
    for name in ("beat", "models"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(_OURS.format(name=name))
    return folder


@contextmanager
def _fleet(installed: Path, project: Path, home: Path) -> Generator[tuple[int, StackState]]:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("NOVA_")},
        **{"NOVA_HOME": str(home), "NOVA_CONSOLE__ENABLED": "false"},
        **{"PYTHONPATH": f"{installed}{os.pathsep}{project}"},
    }
    log = home.with_suffix(".log")
    with log.open("wb") as output:
        command = [sys.executable, "-m", "nova_workers.devstack", "--port", "0"]
        process = subprocess.Popen(
            command, cwd=project, env=environment, stdout=output, stderr=output, start_new_session=True
        )
    try:
        deadline_s = time.monotonic() + _START_S
        while (state := read_state(home)) is None or state.pid != process.pid:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline_s, log.read_text()
            time.sleep(0.05)
        everyone = descendants(process.pid)
        yield process.pid, state
        # The second one kills what is left.
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        process.wait(_STOP_S)
        assert wait_until_gone(everyone, _STOP_S) == set(), log.read_text()
    finally:
        process.kill()
        process.wait()


@proves("packaging.names")
def test_a_fleet_from_the_wheel_runs_beside_a_project_with_modules_of_the_same_names() -> None:
    with tempfile.TemporaryDirectory(prefix="nova-wheel-", ignore_cleanup_errors=True) as folder:
        installed, project = _install_wheel(Path(folder)), _project(Path(folder, "project"))
        home = Path(folder, "home")
        names = {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")}
        assert names == {"nova_workers"}
        with _fleet(installed, project, home) as (pid, state):
            lines = "\n".join(command_lines(descendants(pid)).values())
            assert "nova_workers.api.app:create_app" in lines
            assert "nova_workers.beat.app:app beat" in lines
            key = (home / "api_key").read_text(encoding="utf-8").strip()
            answer: dict[str, Any] = httpx2.post(
                f"{state.api_url}/v1/runs/wait",
                json={"message": "hello"},
                headers={"Authorization": f"Bearer {key}"},
                timeout=_START_S,
            ).json()
            assert answer["status"] == "succeeded", answer
