"""Build what a release consists of, into ``dist/``: ``make release``.

- the wheel and the source archive, from the commit alone (a changed working tree is refused);
- the client for TypeScript as npm's tarball (`typescript.py`);
- the chart for Helm (`chart.py`);
- ``nova-workers.cdx.json``: the bill of materials of all that `requirements.txt` installs, in CycloneDX's format, with
  licences and the hashes of the lock, made in an environment of that lock and nothing else;
- ``provenance.json``: an in-toto statement with SLSA's provenance: which files, of which commit, by which command, with
  which locks. It is not signed; sign it where the release is made, for example with Sigstore;
- ``SHA256SUMS``.

Files have the time of the commit, so two builds of one commit are equal.
"""

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from install import ROOT, run, uv, uv_environment

DIST = ROOT / "dist"
BOM, PROVENANCE, SUMS = "nova-workers.cdx.json", "provenance.json", "SHA256SUMS"
_LOCKED = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==.*\n((?: +--hash=.*\n?)+)", re.MULTILINE)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]+)")
_VALIDATE = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
text = open(sys.argv[1]).read()
error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
sys.exit(error and f"release: the bill of materials is not valid: {error}")
"""
LOCKS = ("requirements.txt", "requirements-release.txt", "requirements-uv.txt")


def main() -> None:
    """Build, describe and digest."""
    if changed := _git("status", "--porcelain"):
        sys.exit(f"release: commit these first, since a release is what a commit holds:\n{changed}")
    if behind := baseline_is_behind():
        sys.exit(f"release: {behind}")
    shutil.rmtree(DIST, ignore_errors=True)
    commit, began = _git("rev-parse", "HEAD"), datetime.now(UTC)
    env = {**uv_environment(), "SOURCE_DATE_EPOCH": _git("show", "--no-patch", "--format=%ct", "HEAD")}
    run(uv(), "build", "--quiet", "--no-build-isolation", "--offline", "--out-dir", DIST, env=env)
    (DIST / ".gitignore").unlink(missing_ok=True)
    for script in ("typescript.py", "chart.py"):
        run(sys.executable, ROOT / "deploy" / "environment" / script, DIST, env=env)
    _write_bom(env)
    digests = {path.name: _sha256(path) for path in sorted(DIST.iterdir())}
    locks = {name: _sha256(ROOT / name) for name in LOCKS}
    described = statement(digests, commit=commit, locks=locks, began=began, ended=datetime.now(UTC))
    (DIST / PROVENANCE).write_text(json.dumps(described, indent=2) + "\n")
    digests[PROVENANCE] = _sha256(DIST / PROVENANCE)
    (DIST / SUMS).write_text("".join(f"{digest}  {name}\n" for name, digest in digests.items()))
    print(f"A release of commit {commit[:12]} in {DIST}:")
    for path in sorted(DIST.iterdir()):
        print(f"  {path.name:<40} {path.stat().st_size:>10,} bytes")


def baseline_is_behind(migrations: Path = ROOT / "models" / "migrations") -> str:
    """Return what to do if new databases of the release would begin with an earlier schema; nothing otherwise."""
    head = max(path.name[:4] for path in (migrations / "versions").glob("[0-9]*.py"))
    baseline = (migrations / "baseline.sql").read_text("utf-8")
    if f"\n-- Revision: {head}\n" in baseline:
        return ""
    return f"the baseline ends before the migration {head}: run `python -m tests.support.data.baseline` and commit it"


def statement(
    digests: dict[str, str], *, commit: str, locks: dict[str, str], began: datetime, ended: datetime
) -> dict[str, Any]:
    """Return an in-toto statement (v1) with SLSA's provenance (v1) of files, given by name with their SHA-256."""
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in digests.items()],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:nova-workers:make-release:1",
                "externalParameters": {"commit": commit},
                "internalParameters": {"python": platform.python_version(), "platform": platform.platform()},
                "resolvedDependencies": [
                    {"name": "source", "digest": {"gitCommit": commit}},
                    *({"name": name, "digest": {"sha256": digest}} for name, digest in locks.items()),
                ],
            },
            "runDetails": {
                "builder": {"id": os.environ.get("BUILDER_ID", f"local:{platform.node()}")},
                "metadata": {"startedOn": began.isoformat(), "finishedOn": ended.isoformat()},
            },
        },
    }


def _write_bom(env: dict[str, str]) -> None:
    """Write the bill of materials of an environment that holds the lock for users and nothing else."""
    with tempfile.TemporaryDirectory(prefix="nova-release-") as folder:
        shipped, tools = Path(folder, "shipped"), Path(folder, "tools")
        for environment, lock in ((shipped, "requirements.txt"), (tools, "requirements-release.txt")):
            run(uv(), "venv", "--quiet", "--python", sys.executable, environment, env=env)
            install = (uv(), "pip", "install", "--quiet", "--require-hashes", "--python", environment, "-r", lock)
            run(*install, env=env)
        run(
            *(tools / "bin" / "cyclonedx-py", "environment", "--output-reproducible", "--validate"),
            *("--pyproject", "pyproject.toml", "--mc-type", "application"),
            *("--output-format", "JSON", "--output-file", DIST / BOM, shipped),
        )
        bom = with_hashes(json.loads((DIST / BOM).read_text()), (ROOT / "requirements.txt").read_text())
        (DIST / BOM).write_text(json.dumps(bom, indent=2) + "\n")
        run(tools / "bin" / "python", "-c", _VALIDATE, DIST / BOM)


def with_hashes(bom: dict[str, Any], lock: str) -> dict[str, Any]:
    """Return a bill of materials whose components name the files that the lock permits, by their SHA-256."""
    hashes = {
        _normal(name): [{"alg": "SHA-256", "content": found} for found in _HASH.findall(files)]
        for name, files in _LOCKED.findall(lock)
    }
    components = [
        {**component, "externalReferences": [*component.get("externalReferences", ()), _distribution(known)]}
        if (known := hashes.get(_normal(component["name"])))
        else component
        for component in bom["components"]
    ]
    return {**bom, "components": components}


def _distribution(hashes: list[dict[str, str]]) -> dict[str, Any]:
    comment = "the files of this version that the lock permits"
    return {"type": "distribution", "url": "requirements.txt", "comment": comment, "hashes": hashes}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
