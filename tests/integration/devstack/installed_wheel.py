"""The wheel, installed beside a project whose own modules have the names that ours have in the repository."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]
_OURS = "raise RuntimeError('a process of the fleet imported the {name} of the project that it is installed beside')\n"


def install_beside_project(folder: Path) -> tuple[Path, dict[str, str]]:
    """Build the wheel, and install it in a folder beside a project. Return the project, and variables of its Python.

    The modules of the project that have our names fail when they are imported.
    """
    installed, project = _install_wheel(folder), _project(folder / "project")
    names = {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")}
    assert names == {"nova_workers"}
    return project, {"PYTHONPATH": f"{installed}{os.pathsep}{project}"}


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
