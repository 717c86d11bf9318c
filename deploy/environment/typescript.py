"""Build the client for TypeScript: ``python deploy/environment/typescript.py FOLDER``, part of ``make release``.

Its types are those of the API's OpenAPI document, written by openapi-typescript; `deploy/typescript` has what is
written by hand: streams, errors, retries. The tarball of npm has the version of this release.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "deploy" / "typescript"
_BUILT = ("node_modules", "dist", "api.ts")
_DEVELOPMENT = re.compile(r"^(\d+\.\d+\.\d+)\.?(a|b|rc|dev)(\d+)$")


def build(document: dict[str, Any], version: str, folder: Path) -> Path:
    """Build the package of an OpenAPI document in a folder, and return the path of its tarball.

    Raises:
        CalledProcessError: What is written by hand does not fit the document, or npm failed.
    """
    with tempfile.TemporaryDirectory(prefix="nova-typescript-") as temporary:
        place = Path(temporary, "package")
        shutil.copytree(SOURCE, place, ignore=shutil.ignore_patterns(*_BUILT))
        if (SOURCE / "node_modules").is_dir():
            (place / "node_modules").symlink_to(SOURCE / "node_modules")
        else:
            _run(place, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
        (place / "openapi.json").write_text(json.dumps(document), encoding="utf-8")
        _run(place, "node_modules/.bin/openapi-typescript", "openapi.json", "--output", "src/api.ts")
        _run(place, "node_modules/.bin/tsc", "--project", ".")
        package = json.loads((place / "package.json").read_text(encoding="utf-8"))
        (place / "package.json").write_text(json.dumps({**package, "version": npm_version(version)}), encoding="utf-8")
        _run(place, "npm", "pack", "--pack-destination", str(folder.resolve()))
    return folder / f"nova-workers-{npm_version(version)}.tgz"


def npm_version(version: str) -> str:
    """Return a version of a release in npm's form: ``0.3.0rc1`` is ``0.3.0-rc.1``."""
    found = _DEVELOPMENT.match(version)
    return version if found is None else f"{found[1]}-{found[2]}.{found[3]}"


def _run(place: Path, *command: str) -> None:
    done = subprocess.run(command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        print(done.stdout, file=sys.stderr)
        raise subprocess.CalledProcessError(done.returncode, command)


def main() -> None:
    """Build the package of this checkout."""
    sys.path.insert(0, str(ROOT))
    from api.app import build_app  # noqa: PLC0415 - of the checkout
    from nova_workers.base.config import Settings  # noqa: PLC0415 - likewise
    from nova_workers.base.release import release  # noqa: PLC0415 - likewise

    nowhere = {"database_url": "postgresql://nova@127.0.0.1:1/none", "redis_url": "redis://127.0.0.1:1/0"}
    print(build(build_app(Settings.model_validate(nowhere)).openapi(), release(), Path(sys.argv[1])))


if __name__ == "__main__":
    main()
