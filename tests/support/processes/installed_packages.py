"""An environment of Python with a package beside this repository, as an operator installs it."""

import os
import shutil
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

from tests.support.data.documents import ROOT


def install(project: Path, into: Path) -> Path:
    """Make an environment with the packages of a project and its entry points; return its directory of packages.

    What is installed for the tests is in it too. Its Python is ``into / "bin" / "python"``.
    """
    venv.create(into, with_pip=False, symlinks=True)
    packages = into / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (packages / "beside.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
    copy_into(project, packages)
    return packages


def copy_into(project: Path, packages: Path) -> None:
    """Copy the packages of a project and its entry points into a directory of packages."""
    described = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))["project"]
    modules = [path.parent for path in project.glob("*/__init__.py")]
    for module in modules:
        shutil.copytree(module, packages / module.name, ignore=shutil.ignore_patterns("__pycache__"))
    about = packages / f"{described['name'].replace('-', '_')}-{described['version']}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {described['name']}\nVersion: {described['version']}\n"
    )
    (about / "entry_points.txt").write_text(
        "\n".join(
            f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
            for group, entries in described["entry-points"].items()
        )
    )
    files = [path for module in modules for path in (packages / module.name).rglob("*.py")]
    (about / "RECORD").write_text("".join(f"{os.path.relpath(path, packages)},,\n" for path in files))
