"""Make the project's environment from the hashed lock: ``python3 deploy/environment/install.py requirements-dev.txt``.

Needs Python 3.11 with pip and nothing else: neither `venv`, nor a system package, nor a compiler. pip fetches
the pinned uv, and uv does the rest, since it takes seconds where pip takes minutes. Both see the same
package sources: what pip is configured with, by files or by ``PIP_*`` variables, is handed on to uv. Every
file is checked against its hash, so no source can slip in another.
"""

import hashlib
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / ".venv"
UV_HOME = ROOT / ".cache" / "uv"
UV_LOCK = ROOT / "requirements-uv.txt"
OLDEST_PYTHON = (3, 11)

# What pip calls a setting, and what uv calls it.
PIP_TO_UV = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
}


def run(*command: str | Path, env: dict[str, str] | None = None) -> None:
    """Run a command; end with its exit code when it fails."""
    done = subprocess.run([str(part) for part in command], cwd=ROOT, env=env, check=False)
    if done.returncode != 0:
        sys.exit(f"environment: {' '.join(str(part) for part in command)} failed with exit code {done.returncode}")


def pip_settings() -> dict[str, str]:
    """Return pip's settings; a variable counts more than ``install.``, and that more than ``global.``."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    ).stdout
    found: dict[str, tuple[int, str]] = {}
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        scope, _, key = name.rpartition(".")
        rank = {"global": 1, "install": 2, ":env:": 3}.get(scope, 0)
        if rank > found.get(key, (0, ""))[0]:
            # A list is printed with an escaped newline between its items.
            found[key] = (rank, value.strip("'\"").replace("\\n", " ").strip())
    return {key: value for key, (_, value) in found.items()}


def uv_environment() -> dict[str, str]:
    """Return the variables for uv. What is set for uv itself stays."""
    env = dict(os.environ)
    settings = pip_settings()
    for key, variable in PIP_TO_UV.items():
        if settings.get(key):
            # uv parts the places to look in by commas, where pip takes blanks.
            value = ",".join(settings[key].split()) if key == "find-links" else settings[key]
            env.setdefault(variable, value)
    # As pip does: the best version of all sources, not the first source that knows the name.
    env.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    # Otherwise uv would use another active environment.
    env["VIRTUAL_ENV"] = str(ENVIRONMENT)
    env.pop("CONDA_PREFIX", None)
    # The environment may lie on another disk than uv's cache: then it copies, and need not say so.
    env.setdefault("UV_LINK_MODE", "copy")
    return env


def uv() -> Path:
    """Return the pinned uv, fetched by pip into a folder of its own when it is not there yet."""
    program = UV_HOME / "bin" / f"uv{sysconfig.get_config_var('EXE') or ''}"
    stamp = UV_HOME / "lock.sha256"
    wanted = hashlib.sha256(UV_LOCK.read_bytes()).hexdigest()
    if not program.exists() or not stamp.exists() or stamp.read_text() != wanted:
        # Into a folder: neither the system's packages nor PEP 668's guard of them are touched.
        pip = (
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--root-user-action=ignore",
        )
        run(*pip, "--upgrade", "--target", UV_HOME, "--no-deps", "--require-hashes", "-r", UV_LOCK)
        stamp.write_text(wanted)
    return program


def main(locks: list[str]) -> None:
    """Make the environment and install the locks and the project into it."""
    if sys.version_info < OLDEST_PYTHON:
        sys.exit(f"environment: Python 3.11 or newer is needed; this is {sys.version.split()[0]} ({sys.executable})")
    program, env = uv(), uv_environment()
    if not (ENVIRONMENT / "pyvenv.cfg").exists():
        run(program, "venv", "--quiet", "--python", sys.executable, ENVIRONMENT, env=env)
    install = (program, "pip", "install", "--quiet")
    for lock in locks:
        # Compiled now and once, rather than at the first start of each of six processes.
        run(*install, "--require-hashes", "--compile-bytecode", "-r", lock, env=env)
    run(*install, "--no-deps", "--no-build-isolation", "--offline", "--editable", ".", env=env)


if __name__ == "__main__":
    main(sys.argv[1:])
