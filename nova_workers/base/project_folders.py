"""Puts projects into folders of their own, with the packages that they need beside what is installed."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Final

from nova_workers.base.errors import ConfigurationError, InvalidInput
from nova_workers.base.project_files import LOCK, PACKAGES
from nova_workers.base.release import DISTRIBUTION
from nova_workers.base.wheels import ProjectWheel, locked_requirements, read_wheel

_INSTALL_TIMEOUT_S: Final = 900.0
_DIGEST_CHARS: Final = 16


def unpack_project(path: Path, root: Path) -> Path:
    """Return the folder of a wheel's project. Unpacks it if it is not there yet, whole or not at all. Blocks.

    Several processes may do it at once.

    Args:
        path: The wheel.
        root: The directory of all unpacked projects.

    Raises:
        InvalidInput: It is not the wheel of a project.
        ConfigurationError: Its packages cannot be installed, or nothing can be written there.
    """
    wheel = read_wheel(path)
    digest = hashlib.sha256(f"{sys.version}\n".encode() + path.read_bytes()).hexdigest()[:_DIGEST_CHARS]
    folder = root / f"{wheel.name}-{wheel.version}-{digest}"
    if folder.is_dir():
        return folder
    try:
        root.mkdir(mode=0o755, parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=root))
    except OSError as error:
        raise ConfigurationError(f"{root}: {path.name} cannot be unpacked there ({error.strerror}).") from error
    try:
        for name, content in wheel.files.items():
            file = partial / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        _install(wheel, partial / PACKAGES)
        # Children of tenants in a sandbox may be other users.
        partial.chmod(0o755)
        try:
            partial.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    except OSError as error:
        raise ConfigurationError(f"{root}: {path.name} cannot be unpacked there ({error.strerror}).") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def missing_packages(lock: str) -> list[str]:
    """Return the lines of a lock whose packages are not installed beside the fleet in just that version.

    Raises:
        InvalidInput: It is no lock.
    """
    lines: list[str] = []
    for name, version, line in locked_requirements(lock):
        try:
            installed = version if name == DISTRIBUTION else metadata.version(name)
        except metadata.PackageNotFoundError:
            installed = None
        if installed != version:
            lines.append(line)
    return lines


def _install(wheel: ProjectWheel, target: Path) -> None:
    try:
        missing = missing_packages(wheel.files.get(LOCK, b"").decode())
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{wheel.file_name}: its {LOCK} is not UTF-8.") from error
    if not missing:
        return
    with tempfile.TemporaryDirectory() as folder:
        lock = Path(folder, LOCK)
        lock.write_text("\n".join(missing) + "\n", encoding="utf-8")
        # Wheels only: an archive of sources would execute its own code here, as the fleet's user.
        command = [*_installer(), "--target", str(target), "--require-hashes", "--no-deps", "--only-binary", ":all:"]
        # The operator's own: an index of packages, a proxy. What is the fleet's is not for an installer.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("NOVA_")}
        try:
            done = subprocess.run(  # noqa: S603 - an installer that is beside us, and our own lock
                [*command, "-r", str(lock)],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_INSTALL_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ConfigurationError(f"{wheel.file_name}: its packages were not installed: {error}.") from error
    if done.returncode:
        last = " ".join(done.stderr.strip().splitlines()[-3:])
        raise ConfigurationError(f"{wheel.file_name}: its packages cannot be installed: {last}")


def _installer() -> list[str]:
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--python", sys.executable]
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install"]
    if pip := shutil.which("pip"):
        return [pip, "--python", sys.executable, "install"]
    raise ConfigurationError(
        "The project needs packages that are not installed beside the fleet, and there is neither uv nor pip to "
        "install them. Install one of the two, or unpack the project where there is one, with `nova install`."
    )
