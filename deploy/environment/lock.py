"""Write the lock: requirements files with hashes, for all platforms, that name no place to download from."""

import subprocess
import sys

from install import ROOT, uv, uv_environment

COMPILE = ("pip", "compile", "--quiet", "--universal", "--generate-hashes", "--upgrade", "--python-version", "3.11")
SILENT = ("--no-emit-index-url", "--no-emit-find-links", "--custom-compile-command", "make lock")

IMAGE = ("--extra=fleet", "--extra=console", "--extra=telegram", "--extra=ag-ui", "--extra=a2a", "--group=build")

# The largest first: the others are held to its versions, so that one environment can hold them all.
LOCKS = {
    "requirements-dev.txt": (
        "pyproject.toml",
        "--extra=all",
        "--extra=claude-agent",
        "--extra=langgraph",
        "--extra=pydantic-ai",
        "--group=test",
        "--group=check",
        "--group=build",
    ),
    "requirements.txt": ("pyproject.toml", "--extra=all", "--group=build", "-c=requirements-dev.txt"),
    "deploy/requirements.txt": ("pyproject.toml", *IMAGE, "-c=requirements-dev.txt"),
    "deploy/requirements-embeddings.txt": (
        "pyproject.toml",
        *IMAGE,
        "--extra=embeddings",
        "-c=requirements-dev.txt",
    ),
    "requirements-docs.txt": ("--group=docs", "-c=requirements-dev.txt"),
    "requirements-release.txt": ("--group=release",),
    "requirements-uv.txt": ("--group=uv",),
    # Files in wheels: what their Python needs is not installed.
    "requirements-kubernetes.txt": ("--no-deps", "--group=kubernetes"),
}


def main() -> None:
    """Write every lock."""
    env = uv_environment()
    # A local source of wheels may hold files of this platform only, and so only their hashes.
    for variable in ("UV_INDEX", "UV_FIND_LINKS"):
        env.pop(variable, None)
    for name, wanted in LOCKS.items():
        command = [str(uv()), *COMPILE, *SILENT, *wanted, "--output-file", name]
        done = subprocess.run(command, cwd=ROOT, env=env, check=False)
        if done.returncode != 0:
            sys.exit(f"lock: {name} could not be resolved")


if __name__ == "__main__":
    main()
