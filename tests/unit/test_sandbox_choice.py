"""Which sandbox a worker takes at its start, and what its log says about it."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from nova_workers.bootstrap.engines import find_shell
from nova_workers.config import Settings
from nova_workers.config.sections import ToolSettings
from nova_workers.errors import ConfigurationError
from nova_workers.shell_sandbox import SandboxChoice
from tests.requirements import proves


@pytest.fixture
def bwrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for bubblewrap that permits everything, on a machine where nothing else can make a sandbox."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, code in (("bwrap", 0), ("setpriv", 0), ("python", 1)):
        program = folder / name
        program.write_text(f"#!/bin/sh\necho 'not here' >&2\nexit {code}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr("sys.executable", str(folder / "python"))
    return folder / "bwrap"


def _settings(home: Path, choice: SandboxChoice = "auto", *, every_tenant: bool = False) -> Settings:
    return Settings(home=home, tools=ToolSettings(sandbox=choice, shell_sandbox=every_tenant))


def test_a_worker_says_what_confines_its_commands(tmp_path: Path, bwrap: Path) -> None:
    with capture_logs() as logs:
        shell = find_shell(_settings(tmp_path))
    assert shell.enclosing is not None
    assert shell.sandbox is None
    assert [(line["event"], line["kind"]) for line in logs] == [("sandbox.found", "bubblewrap")]
    assert find_shell(_settings(tmp_path, every_tenant=True)).sandbox is not None


@proves("ceilings.sandbox")
@pytest.mark.parametrize(("choice", "kinds"), [("auto", 3), ("landlock", 1)])
def test_a_worker_without_a_sandbox_says_why_and_refuses_to_start_where_all_commands_need_one(
    tmp_path: Path, bwrap: Path, choice: SandboxChoice, kinds: int
) -> None:
    bwrap.write_text("#!/bin/sh\necho 'not here' >&2\nexit 1\n")
    with capture_logs() as logs:
        shell = find_shell(_settings(tmp_path, choice))
    assert shell.enclosing is None
    assert shell.why_none.count("not here") == kinds
    assert [(line["event"], line["log_level"]) for line in logs] == [("sandbox.none", "warning")]
    with pytest.raises(ConfigurationError, match="NOVA_TOOLS__SHELL_SANDBOX is on"):
        find_shell(_settings(tmp_path, choice, every_tenant=True))
